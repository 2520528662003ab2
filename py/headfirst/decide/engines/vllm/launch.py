"""vLLM's command line for one rank.

Sources: docs/serving/parallelism_scaling.md and data_parallel_deployment.md of vLLM, and in 0.33.0
engine/arg_utils.py (create_engine_config) and entrypoints/cli/serve.py (run_headless).
"""

from __future__ import annotations

import json
from collections.abc import Container

from headfirst.common.errors import InputError
from headfirst.decide.engines import nccl, ray
from headfirst.decide.engines.base import KvTransfer, Launch, LaunchRequest
from headfirst.decide.engines.vllm.arguments import plain, without_servers
from headfirst.decide.engines.vllm.disaggregation import KV_ROLES
from headfirst.decide.model.checkpoint import Mla

# Without a GPU: no compiling at start, and a context that fits into the small KV cache.
_CPU_DEFAULTS = {"--enforce-eager": None, "--max-model-len": "2048", "--distributed-timeout-seconds": "120"}
# How models that generate text are made to serve another task; those that only pool are as they are.
_TASKS: dict[str, dict[str, str | None]] = {
    "embedding": {"--runner": "pooling", "--convert": "embed"},
    "rerank": {"--runner": "pooling", "--convert": "classify"},
    "reward": {"--runner": "pooling"},
}
# From dist_port on; data-parallel and tensor ranks count further from there.
_SIDE_CHANNEL = 20


def launch(known: Container[str], request: LaunchRequest) -> Launch:
    """The program, its arguments and its environment; `known`: its flags. InputError for a runtime that vLLM
    does not have."""
    if request.runtime is None:
        return Launch(_serve(request, known, _nodes(request)), _environment(request), entrypoint="vllm")
    if request.runtime != "ray":
        raise InputError(f"vLLM has no runtime {request.runtime!r}.", hint="Write ray, or leave it out.")
    if request.device == "cpu":
        raise InputError("vLLM does not run on CPUs with Ray.", hint="Remove engine_runtime.")
    serve = ["vllm", *_serve(request, known, ["--distributed-executor-backend", "ray"])]
    bash, *script = ray.command(request, serve, gpus=request.layout.world // request.nodes)
    return Launch(script, _environment(request), entrypoint=bash, programs=ray.PROGRAMS)


def rendezvous_ports(request: LaunchRequest) -> range:
    """Of the head: torch's rendezvous or Ray's, and the handshake of data-parallel ranks after it."""
    spanning = request.layout.data > 1 and request.nodes > 1 and not _whole_groups(request)
    return range(request.dist_port, request.dist_port + (2 if spanning else 1))


def _serve(request: LaunchRequest, known: Container[str], nodes: list[str]) -> list[str]:
    """The arguments of `vllm`. The API key comes from the config file; headless ranks have no HTTP."""
    user_flags = {word.partition("=")[0] for word in plain(request.extra_args)}
    command = ["serve", request.model_dir, "--served-model-name", request.served_name]
    command += ["--tensor-parallel-size", str(request.layout.tensor)]
    if request.layout.pipeline > 1:
        command += ["--pipeline-parallel-size", str(request.layout.pipeline)]
    command += nodes
    if request.trust_remote_code and "--trust-remote-code" not in user_flags:
        command += ["--trust-remote-code"]
    if request.rank == 0:
        command += ["--host", request.listen_address, "--port", str(request.port)]
        command += ["--config", request.config_file] if request.config_file else []
    command += _defaults(_TASKS.get(request.task, {}), user_flags)
    if request.device == "cpu":
        ours = {flag: value for flag, value in _cpu_defaults(request).items() if flag in known}
        command += _defaults(ours, user_flags)
    if request.transfer:
        command += ["--kv-transfer-config", _transfer_config(request, request.transfer)]
    if request.adapters:
        command += [] if "--enable-lora" in user_flags else ["--enable-lora"]
        command += ["--lora-modules", *(f"{name}={folder}" for name, folder in request.adapters.items())]
    extra = request.extra_args if request.rank == 0 else without_servers(request.extra_args)
    return [*command, *extra]


def _cpu_defaults(request: LaunchRequest) -> dict[str, str | None]:
    """Later stages have no buffer for what arrives unless a warm-up ran, which --enforce-eager leaves out
    (v1/worker/cpu_worker.py, _should_warm_up_model): the first request would end them."""
    skipped = {"--enforce-eager"} if request.layout.pipeline > 1 else set()
    flags = {flag: value for flag, value in _CPU_DEFAULTS.items() if flag not in skipped}
    mla = request.checkpoint and request.checkpoint.mla
    return flags if not mla or _packed_by_amx(mla) else flags | {"--attention-backend": "CPU_MLA"}


def _packed_by_amx(mla: Mla) -> bool:
    """Whether tiles of AMX, 16 outputs of 32 inputs, divide the heads' matrices. vLLM takes AMX wherever the
    CPU has it, and fails at the others (v1/attention/backends/mla/amx_mla.py, convert_weight_packed)."""
    inputs, outputs = (mla.qk_nope_head_dim, mla.kv_lora_rank), (mla.kv_lora_rank, mla.v_head_dim)
    return all(size % 32 == 0 for size in inputs) and all(size % 16 == 0 for size in outputs)


def _nodes(request: LaunchRequest) -> list[str]:
    """How the ranks of several nodes find the head."""
    if request.nodes == 1:
        return []
    headless = ["--headless"] if request.rank else []
    if request.layout.data > 1 and _whole_groups(request):
        return _data_groups(request, request.dist_port) + headless
    return [
        *["--nnodes", str(request.nodes), "--node-rank", str(request.rank)],
        *["--master-addr", request.head_address, "--master-port", str(request.dist_port)],
        *(_handshake(request, request.dist_port + 1) if request.layout.data > 1 else []),
        *headless,
    ]


def _whole_groups(request: LaunchRequest) -> bool:
    """Whether no data-parallel group spans nodes."""
    return request.layout.data % request.nodes == 0


def _data_groups(request: LaunchRequest, port: int) -> list[str]:
    """Each node runs whole groups of its own, and the head's server spreads the requests."""
    local = request.layout.data // request.nodes
    start = ["--data-parallel-start-rank", str(request.rank * local)] if request.rank else []
    return ["--data-parallel-size-local", str(local), *start, *_handshake(request, port)]


def _handshake(request: LaunchRequest, port: int) -> list[str]:
    return ["--data-parallel-address", request.head_address, "--data-parallel-rpc-port", str(port)]


def _defaults(flags: dict[str, str | None], user_flags: set[str]) -> list[str]:
    """The flags that the user did not set."""
    missing = {flag: value for flag, value in flags.items() if flag not in user_flags}
    return [word for flag, value in missing.items() for word in ((flag,) if value is None else (flag, value))]


def _environment(request: LaunchRequest) -> dict[str, str]:
    """Variables of the container, without secrets; the user's `extra_env` wins over all of them."""
    env = {"VLLM_NO_USAGE_STATS": "1"}  # otherwise it reports to the project's server
    if request.nodes > 1:
        env["VLLM_HOST_IP"] = request.address
    if request.ready_seconds:  # vLLM gives up after 600 s, while a large model still loads
        env["VLLM_ENGINE_READY_TIMEOUT_S"] = str(request.ready_seconds)
    env |= nccl.environment(request, nvls=True)
    env |= _cpu(request) if request.device == "cpu" else {}
    env |= _transfer(request) | _caches(request.cache_dir)
    return env | dict(request.extra_env)


def _caches(folder: str | None) -> dict[str, str]:
    """Where vLLM, Triton and FlashInfer keep what they compile; else in the container."""
    if folder is None:
        return {}
    return {
        "VLLM_CACHE_ROOT": f"{folder}/vllm",  # torch.compile's and DeepGEMM's caches are below it
        "TRITON_CACHE_DIR": f"{folder}/triton",
        "FLASHINFER_WORKSPACE_BASE": f"{folder}/flashinfer",
    }


def _transfer_config(request: LaunchRequest, transfer: KvTransfer) -> str:
    """vllm/config/kv_transfer.py, KVTransferConfig.

    Where the KV cache of a prompt cannot be read, because its prefill replica ended, the decode replica
    computes the prompt itself.
    """
    config = {
        "kv_connector": "NixlConnector",
        "kv_role": KV_ROLES[transfer.role],
        "kv_load_failure_policy": "recompute",
        **({"kv_buffer_device": "cpu"} if request.device == "cpu" else {}),
    }
    return json.dumps(config, separators=(",", ":"))


def _transfer(request: LaunchRequest) -> dict[str, str]:
    """NIXL: where other replicas ask for the KV cache, by default at localhost, and UCX, which carries it."""
    if request.transfer is None:
        return _own_transfer(request)
    env = {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": request.address,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(request.transfer.port),
    }
    if request.checkpoint and request.checkpoint.recurrent:
        env["VLLM_SSM_CONV_STATE_LAYOUT"] = "DS"  # base_worker.py asserts it
    if request.device == "cpu":
        env["UCX_TLS"] = "tcp,self,sm"
    if devices := nccl.rdma_devices(request.hca or ""):
        env["UCX_NET_DEVICES"] = ",".join(f"{device}:1" for device in devices)
        env |= {} if request.ib_gid_index is None else {"UCX_IB_GID_INDEX": str(request.ib_gid_index)}
    elif request.transfer.rdma is False and request.nic:
        env["UCX_NET_DEVICES"] = request.nic
    return env


def _own_transfer(request: LaunchRequest) -> dict[str, str]:
    """Where the user's own arguments have NIXL."""
    rest = iter(plain(request.extra_args))
    config = next((next(rest, "") for word in rest if word == "--kv-transfer-config"), "")
    if "Nixl" not in config:
        return {}
    return {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": request.address,
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(request.dist_port + _SIDE_CHANNEL),
    }


def _cpu(request: LaunchRequest) -> dict[str, str]:
    env = {"VLLM_CPU_KVCACHE_SPACE": "1"}  # GiB of each rank; the default is half of the node's memory
    if request.cpu_cores:
        env["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(request.cpu_cores)
    if request.layout.pipeline > 1:
        env["VLLM_USE_AOT_COMPILE"] = "0"  # fails where TORCHDYNAMO_DISABLE is set
    return env
