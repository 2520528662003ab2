"""What vLLM's own code makes of commands: parsed, checked and configured, as at a start before it uses a GPU.

The question is {"gpu": …, "commands": [[word, …], …], "environments": [{…}, …]}, the words those of
containers; the answers are in the same order (planned_gpu.answers).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import planned_gpu
import torch

# Libraries of the CUDA build, which do not load beside a CPU torch.
KERNELS = ("_C", "_C_stable_libtorch", "_moe_C", "_moe_C_stable_libtorch", "_qutlass_C", "vllm_flash_attn")
# The lowest capability that these functions of vLLM's kernels accept, times ten.
KERNEL_SUPPORT = {
    "cutlass_scaled_mm_supports_fp8": 89,
    "cutlass_scaled_mm_supports_block_fp8": 90,
    "cutlass_scaled_mm_supports_fp4": 100,
    "cutlass_group_gemm_supported": 90,
}
# Not installed; model files import them.
OPTIONAL = (
    *("torchvision", "torchaudio", "torchcodec", "timm", "terratorch"),
    *("pynvml", "xgrammar", "flashinfer"),
)


class Operators(ModuleType):
    """The operators of vLLM's kernels for CUDA: those above answer, every other one is only there."""

    def __getattr__(self, name: str) -> Any:
        """The operator; AttributeError for those of the build for CPUs."""
        if name.startswith("__") or "cpu" in name:
            raise AttributeError(name)
        operator = partial(_reaches, KERNEL_SUPPORT[name]) if name in KERNEL_SUPPORT else MagicMock(name=name)
        setattr(self, name, operator)
        return operator


def _reaches(lowest: int, capability: int) -> bool:
    return capability >= lowest


def start(gpu: dict[str, Any]) -> None:
    """Makes CUDA vLLM's platform, and has it read model classes in this process."""
    planned_gpu.install(gpu, [f"vllm.{name}" for name in KERNELS])
    torch.ops._C = Operators("_C")
    # torch has none of the operators for which vLLM registers shapes.
    torch.library.register_fake = lambda *_words, **_options: lambda function: function
    import vllm.platforms
    from vllm.platforms.cuda import CudaPlatform

    class Planned(CudaPlatform):
        """The planned GPUs, all connected."""

        @classmethod
        def device_count(cls) -> int:
            """GPUs of the node."""
            return int(gpu["count"])

        @classmethod
        def is_fully_connected(cls, _devices: list[int]) -> bool:
            """NVLink."""
            return True

    vllm.platforms._current_platform = Planned()
    # It looks for optional packages when it is imported: before they have stand-ins.
    import transformers.image_processing_utils  # noqa: F401
    from vllm.model_executor.models import registry

    planned_gpu.stand_in(OPTIONAL)
    registry._run_in_subprocess = lambda function: function()
    replace_image_processors()


def replace_image_processors() -> None:
    """Stand-ins for image processors that are code of the publisher, which is not there."""
    from vllm.transformers_utils import processor

    processor.cached_get_image_processor = partial(_image_processor, processor.cached_get_image_processor)


def _image_processor(original: Callable[..., Any], *words: Any, **options: Any) -> Any:
    """A model's image processor, or a stand-in."""
    try:
        return original(*words, **options)
    except OSError:
        return MagicMock(name="image processor")


def configured(command: list[str]) -> dict[str, Any]:
    """Settings of vLLM's whole configuration."""
    _, config = planned_gpu.probe("vllm").read(command)
    return {
        "max_model_len": config.model_config.max_model_len,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
        "block_size": config.cache_config.block_size,
        "cache_dtype": config.cache_config.cache_dtype,
    }


def main() -> None:
    """Answers one file of questions."""
    question = planned_gpu.question()
    start(question["gpu"])
    planned_gpu.write(planned_gpu.answers("vllm", question, configured))


if __name__ == "__main__":
    main()
