"""GPU memory that is in use before an engine loads a model: the same for every engine on CUDA."""

from __future__ import annotations

from headfirst.decide.engines.layout import Layout
from headfirst.decide.hardware.gpus import MIB

# In use before the weights are loaded: CUDA's context, NCCL's buffers, what the driver keeps of the memory
# that nvidia-smi reports. One GPU: 23.99 − 3.64 − 18.82 GiB on an RTX 4090 (sglang #4895). Several GPUs:
# 140.4 − 12.25 − 125.65 GiB on H200 (InferenceX #2128), 80 − 36.5 − 41.2 GiB on A100 (sglang #4161, #3784).
_ONE_GPU = 1536 * MIB
_SEVERAL_GPUS = 2560 * MIB


def outside(layout: Layout) -> int:
    """Bytes of each GPU that CUDA's context, NCCL's buffers and the driver take."""
    return _ONE_GPU if layout.world == 1 else _SEVERAL_GPUS
