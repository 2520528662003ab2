"""vLLM's environment for one rank: how the ranks find each other, and its settings for CPUs."""

from __future__ import annotations

from headfirst.decide.engines import nccl
from headfirst.decide.engines.base import LaunchRequest
from headfirst.decide.engines.vllm import words

# From dist_port on; data-parallel and tensor ranks count further from there.
_SIDE_CHANNEL = 20


def environment(request: LaunchRequest) -> dict[str, str]:
    """Variables of the container, without secrets; the user's `extra_env` wins over all of them."""
    env = {"VLLM_NO_USAGE_STATS": "1"}  # otherwise it reports to the project's server
    if request.nodes > 1:
        env["VLLM_HOST_IP"] = request.address
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


def _transfer(request: LaunchRequest) -> dict[str, str]:
    """NIXL: where the other side of a prefill and decode pair asks for the KV cache; by default localhost."""
    rest = iter(words.plain(request.extra_args))
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
