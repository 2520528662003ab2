"""SGLang's command line for one rank (sglang benchmark/deepseek_v3/README.md, and 0.5.23's parser)."""

from __future__ import annotations

from collections.abc import Container

from headfirst.common.errors import InputError
from headfirst.decide.engines import nccl
from headfirst.decide.engines.base import Launch, LaunchRequest

METRICS_FLAG = "--enable-metrics"

# Without a GPU: torch's own attention kernels and a small KV pool; measured on two cores.
_CPU_DEFAULTS = {
    "--attention-backend": "torch_native",
    "--max-total-tokens": "4096",
    "--mem-fraction-static": "0.2",
    "--dist-timeout": "120",
}


# Rerankers need no flag: cross-encoders are known by their architecture, and the others generate "yes" or
# "no" (configs/model_config.py, is_generation_model; entrypoints/openai/serving_rerank.py).
_EMBEDDING_TASKS = {"embedding", "reward"}


def launch(known: Container[str], request: LaunchRequest) -> Launch:
    """`python3 -m sglang.launch_server …` with NCCL, gloo and SGLang variables. `known`: its flags."""
    return Launch(_argv(request, known), _environment(request))


def meets(request: LaunchRequest) -> bool:
    """Whether the ranks meet at dist_port. On one host that keeps the ports of attention groups, which else
    follow engine_port, from those of the replica before."""
    return request.nodes > 1 or (request.shares_host and request.layout.attention_data > 1)


def _argv(request: LaunchRequest, known: Container[str]) -> list[str]:
    """The container's command. Rank 0 listens for clients; the API key comes from the config file."""
    if request.runtime is not None:
        raise InputError(
            f"SGLang has no runtime {request.runtime!r}: its ranks connect without one.",
            hint="Remove engine_runtime.",
        )
    if ":" in request.served_name:  # arg_groups/validation_hook.py, check_server_args
        raise InputError(
            f"served_model_name={request.served_name} has a colon.",
            hint="SGLang reads what follows a colon as the name of a LoRA adapter: write another character.",
        )
    command = ["python3", "-m", "sglang.launch_server", "--model-path", request.model_dir]
    command += ["--served-model-name", request.served_name]
    # argparse takes --tp for --tp-size; the documentation of every release writes it so.
    command += ["--tp", str(request.layout.tensor)]
    if request.layout.pipeline > 1:
        command += ["--pp-size", str(request.layout.pipeline)]
    if request.task in _EMBEDDING_TASKS and "--is-embedding" not in request.extra_args:
        command += ["--is-embedding"]
    if request.adapters:
        folders = [f"{name}={folder}" for name, folder in request.adapters.items()]
        command += [*_optional(known, "--enable-lora"), "--lora-paths", *folders]
    if meets(request):
        address = request.head_address if request.nodes > 1 else "127.0.0.1"
        command += ["--dist-init-addr", f"{address}:{request.dist_port}"]
    if request.nodes > 1:
        command += ["--nnodes", str(request.nodes), "--node-rank", str(request.rank)]
    # On every rank, though only rank 0 is asked: the ranks' schedulers must be configured alike.
    if METRICS_FLAG not in request.extra_args:
        command += [METRICS_FLAG]
    if request.trust_remote_code and "--trust-remote-code" not in request.extra_args:
        command += ["--trust-remote-code"]
    # Ranks above 0 only answer health probes, on 127.0.0.1 by SGLang's default.
    if request.rank == 0:
        command += ["--host", request.listen_address]
    command += ["--port", str(request.port)]
    if request.config_file and request.rank == 0:
        command += ["--config", request.config_file]
    command += _transfer(request)
    if request.device == "cpu":
        # Idle ranks otherwise poll without a pause, on the cores that the others compute with.
        command += ["--device", "cpu", *_optional(known, "--sleep-on-idle")]
        command += _cpu_defaults(known, request.extra_args)
    return [*command, *request.extra_args]


def _optional(known: Container[str], flag: str) -> list[str]:
    """A flag that other versions may lack, and without which the service works."""
    return [flag] if flag in known else []


def _transfer(request: LaunchRequest) -> list[str]:
    """The side of a divided service, and what carries its KV cache (srt/arg_groups/fields/disagg.py)."""
    transfer = request.transfer
    if transfer is None:
        return []
    words = ["--disaggregation-mode", transfer.role]
    tcp = transfer.carrier == "mooncake" and transfer.rdma is False
    words += ["--disaggregation-transfer-backend", "mooncake_tcp" if tcp else transfer.carrier]
    if transfer.role == "prefill":
        words += ["--disaggregation-bootstrap-port", str(transfer.port)]
    devices = nccl.rdma_devices(request.hca or "")
    return [*words, "--disaggregation-ib-device", ",".join(devices)] if devices else words


def _cpu_defaults(known: Container[str], extra: tuple[str, ...]) -> list[str]:
    """The CPU defaults that the user did not set."""
    user_flags = {word.partition("=")[0] for word in extra}
    ours = [flag for flag in _CPU_DEFAULTS if flag not in user_flags and flag in known]
    return [word for flag in ours for word in (flag, _CPU_DEFAULTS[flag])]


def _environment(request: LaunchRequest) -> dict[str, str]:
    """Variables of the container, without secrets; the user's `extra_env` wins over all of them."""
    env = {"SGLANG_HOST_IP": request.address} if request.nodes > 1 or request.transfer else {}
    env |= nccl.environment(request, nvls="--enable-nccl-nvls" in request.extra_args)
    env |= _cpu(request) if request.device == "cpu" else {}
    return env | _caches(request.cache_dir) | dict(request.extra_env)


def _caches(folder: str | None) -> dict[str, str]:
    """Where torch.compile, Triton, DeepGEMM and FlashInfer keep what they compile; else in the container."""
    if folder is None:
        return {}
    return {
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "TRITON_CACHE_DIR": f"{folder}/triton",
        "SGLANG_CACHE_DIR": f"{folder}/sglang",  # DeepGEMM's and autotuning's caches are below it
        "FLASHINFER_WORKSPACE_BASE": f"{folder}/flashinfer",
    }


def _cpu(request: LaunchRequest) -> dict[str, str]:
    return {
        "SGLANG_USE_CPU_ENGINE": "1",
        "TORCHDYNAMO_DISABLE": "1",  # otherwise the first request compiles, and needs a g++
        # Left out, SGLang demands one NUMA node for every rank of the whole cluster.
        "SGLANG_CPU_OMP_THREADS_BIND": "|".join(request.cpu_cores),
    }
