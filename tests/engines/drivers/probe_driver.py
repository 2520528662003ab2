"""Runs a probe's loader, the first argument, where optional packages are missing that an image has.

vLLM's model files import packages that only exist as CUDA builds; they get stand-ins, and no model is run.
"""

from __future__ import annotations

import importlib.util
import sys

import planned_gpu

OPTIONAL = ("torchvision", "torchaudio", "torchcodec", "timm", "terratorch", "pynvml", "numba")


def main() -> None:
    """Runs the loader, which reads its modules and the request."""
    if importlib.util.find_spec("vllm"):
        # These look for optional packages when they are imported: before they have stand-ins.
        import transformers.models.auto.modeling_auto
        import vllm.model_executor.models.registry  # noqa: F401

        planned_gpu.stand_in(OPTIONAL)
    exec(sys.argv[1], {})


if __name__ == "__main__":
    main()
