"""What an engine's own functions accept on GPUs of each compute capability.

The question is {"engine": …, "capabilities": [[major, minor], …]}; the answer has for each of them
{fact: whether it holds}. Each has a process of its own, as modules read the GPU when they are imported.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import planned_gpu
import torch


def gpu(capability: list[int]) -> dict[str, Any]:
    """A GPU of this capability, as planned_gpu.install reads it."""
    return {"name": "NVIDIA GPU", "memory_mib": 81920, "capability": capability, "count": 8}


def sglang(capability: list[int]) -> Mapping[str, bool]:
    """Of SGLang."""
    import sglang_driver

    planned_gpu.install(gpu(capability), sglang_driver.ABSENT)
    from sglang.srt.layers import deep_gemm_wrapper
    from sglang.srt.layers.quantization import fp8_utils
    from sglang.srt.model_executor.model_runner_components import load_model_utils

    model = SimpleNamespace(dtype=torch.bfloat16)
    with patch.object(load_model_utils, "get_context"):
        starts = _accepts(load_model_utils.maybe_downgrade_dtype_for_legacy_gpu, model_config=model)
    return {
        "start": starts,
        "bf16": model.dtype == torch.bfloat16,
        "mxfp8": not fp8_utils.resolve_mxfp8_dense_gemm_backend().is_unsupported(),
        # The scores of the sparse attention's index are DeepGEMM's (layers/attention/dsa/dsa_indexer.py).
        "sparse attention": deep_gemm_wrapper.ENABLE_JIT_DEEPGEMM,
    }


def vllm(capability: list[int]) -> Mapping[str, bool]:
    """Of vLLM."""
    import vllm_driver

    vllm_driver.start(gpu(capability))
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.fused_moe import deep_gemm_mega_moe
    from vllm.platforms import current_platform
    from vllm.platforms.interface import DeviceCapability
    from vllm.v1.attention.backends.flashinfer import FlashInferBackend
    from vllm.v1.attention.backends.mla.triton_mla import MLACommonImpl, TritonMLAImpl
    from vllm.v1.attention.selector import AttentionSelectorConfig
    from vllm_without_gpu import OnMeta

    device = DeviceCapability(*capability)

    def backends(**settings: Any) -> bool:
        given = {"dtype": torch.bfloat16, "kv_cache_dtype": "auto", "block_size": None, **settings}
        selected = AttentionSelectorConfig(**given)
        valid, _ = current_platform.get_valid_backends(device, selected, 16)
        return bool(valid)

    def latents(kind: str) -> bool:
        """Below Hopper no backend but Triton's has latent attention."""
        layer = (16, 576, 1.0, 1, None, None, kind, None, "decoder", None)
        with patch.object(MLACommonImpl, "__init__", lambda self, *_: setattr(self, "kv_cache_dtype", kind)):
            return _accepts(TritonMLAImpl, *layer)

    name = "check_deep_gemm_mega_moe_supported"  # 0.33.0; it was a part of the other one before
    mega = getattr(deep_gemm_mega_moe, name, None) or deep_gemm_mega_moe.get_deep_gemm_mega_moe_backend
    with OnMeta(), set_current_vllm_config(VllmConfig()):  # a module of the backends makes a buffer
        return {
            "bf16": torch.bfloat16 in current_platform.supported_dtypes,
            "flashinfer": FlashInferBackend.supports_compute_capability(device),
            "fp8 latents": latents("fp8"),
            "fp8 cache": backends(head_size=128, kv_cache_dtype="fp8"),
            "deep_gemm_mega_moe": _accepts(mega, torch.device("cuda"), 7168, 3072),
            "sparse attention": backends(head_size=576, use_mla=True, use_sparse=True),
        }


def _accepts(function: Callable[..., Any], *words: Any, **options: Any) -> bool:
    try:
        function(*words, **options)
    except (NotImplementedError, RuntimeError, ValueError):
        return False
    return True


def main() -> None:
    """Answers one file of questions."""
    question = planned_gpu.question()
    facts = {"sglang": sglang, "vllm": vllm}[question["engine"]]
    with multiprocessing.get_context("fork").Pool(maxtasksperchild=1) as processes:
        planned_gpu.write(processes.map(facts, question["capabilities"], chunksize=1))


if __name__ == "__main__":
    main()
