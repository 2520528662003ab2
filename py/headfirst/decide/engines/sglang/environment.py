"""SGLang's environment for one rank: how the ranks find each other, and NCCL's settings."""

from __future__ import annotations

from headfirst.decide.engines import nccl
from headfirst.decide.engines.base import LaunchRequest


def environment(request: LaunchRequest) -> dict[str, str]:
    """Variables of the container, without secrets; the user's `extra_env` wins over all of them."""
    env = {"SGLANG_HOST_IP": request.address} if request.nodes > 1 else {}
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
