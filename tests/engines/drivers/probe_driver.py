"""Runs a probe's loader, the first argument, where packages are missing that an engine's image has.

The second argument is a GPU as planned_gpu.install reads it, or null. No model is run.
"""

from __future__ import annotations

import importlib.util
import json
import sys

import planned_gpu

# vLLM's model files import these, which only exist as CUDA builds.
OPTIONAL = ("torchvision", "torchaudio", "torchcodec", "timm", "terratorch", "pynvml", "numba")
# In LMDeploy's image; TurboMind's compiled part needs CUDA's libraries.
OF_LMDEPLOY = ("fla", "flash_mla", "deep_gemm", "deep_ep", "fast_hadamard_transform")
OF_LMDEPLOY += ("lmdeploy.turbomind._turbomind", "_turbomind", "_xgrammar")


def main() -> None:
    """Runs the loader, which reads its modules and the request."""
    if gpu := json.loads(sys.argv[2]):
        planned_gpu.install(gpu, OF_LMDEPLOY)
    if importlib.util.find_spec("vllm"):
        # It looks for optional packages when it is imported: before they have stand-ins.
        import vllm.model_executor.models.registry  # noqa: F401

        planned_gpu.stand_in(OPTIONAL)
    exec(sys.argv[1], {})


if __name__ == "__main__":
    main()
