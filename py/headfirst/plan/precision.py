"""Must an FP8 checkpoint be converted to BF16 before it is served? Decided here, once, with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from headfirst.model.checkpoint import Checkpoint
from headfirst.plan.gpus import FP8_CAPABILITY, Gpu


@dataclass(frozen=True)
class Precision:
    """`dtype` is what the engine is given to serve; `reason` is a sentence for people."""

    convert_to_bf16: bool
    dtype: str
    reason: str


def choose(checkpoint: Checkpoint, gpu: Gpu | None, *, device: str) -> Precision:
    """Decide by the checkpoint's dtype and the hardware; `device` is cuda or cpu.

    With an unknown GPU (None on cuda) nothing is converted, and the reason says so.
    """
    if checkpoint.dtype != "fp8":
        return Precision(False, checkpoint.dtype, f"The checkpoint is {checkpoint.dtype.upper()} already.")
    if device == "cpu":
        return Precision(True, "bf16", "The checkpoint is FP8 and the engine's CPU path has no FP8 kernels.")
    if gpu is None:
        return Precision(
            False,
            "fp8",
            "The checkpoint is FP8 and the GPU is not known: it is served as it is. "
            "Set gpu= (for example gpu=A100-80G) or use --probe to decide by the hardware.",
        )
    capability = f"{gpu.name} (compute capability {gpu.compute_capability[0]}.{gpu.compute_capability[1]})"
    if gpu.fp8:
        return Precision(False, "fp8", f"The checkpoint is FP8 and {capability} computes in FP8.")
    needed = f"{FP8_CAPABILITY[0]}.{FP8_CAPABILITY[1]}"
    return Precision(
        True, "bf16", f"The checkpoint is FP8 and {capability} has no FP8: that starts with {needed}."
    )
