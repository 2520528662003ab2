"""Must a quantised checkpoint be converted to BF16 before it is served? Decided here, with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from headfirst.common.errors import InputError
from headfirst.decide.engines import presets
from headfirst.decide.engines.base import BF16_CAPABILITY, Computing, Engine, Values
from headfirst.decide.hardware.gpus import Gpu, capability_text
from headfirst.decide.model import families
from headfirst.decide.model.checkpoint import FLOATS, Checkpoint


@dataclass(frozen=True)
class Precision:
    """`dtype` is what the engine is given to serve; `reason` is a sentence for people."""

    convert_to_bf16: bool
    dtype: str
    reason: str


@dataclass(frozen=True)
class Loaded:
    """What is in memory: the checkpoint as the engine computes it, and the `dtype` in which a fit counts it.

    `computing` is None where the engine computes what is served in its own type.
    """

    checkpoint: Checkpoint
    dtype: str
    computing: Computing | None


def loaded(
    checkpoint: Checkpoint,
    chosen: Precision,
    gpu: Gpu | None,
    engine: Engine,
    arguments: Values = MappingProxyType({}),
) -> Loaded:
    """What the engine makes of the checkpoint in memory; `arguments` are those of `choose`."""
    source = checkpoint.converted if chosen.convert_to_bf16 else checkpoint
    computing = engine.computing(source, gpu, arguments)
    if computing is None:
        return Loaded(checkpoint, chosen.dtype, None)
    # Else it is quantised while it is loaded.
    dtype = computing.dtype if chosen.dtype in FLOATS else chosen.dtype
    return Loaded(source.computed_in(computing.dtype), dtype, computing)


def served(
    checkpoint: Checkpoint, gpu: Gpu, engine: Engine, arguments: Values = MappingProxyType({})
) -> tuple[Precision, Loaded]:
    """What the engine serves of the checkpoint with these values of arguments, and what of it is in memory.

    InputError where it serves nothing of it.
    """
    chosen = choose(checkpoint, gpu, engine, device="cuda", arguments=arguments)
    source = checkpoint.converted if chosen.convert_to_bf16 else checkpoint
    if problems := engine.support_problems(source, gpu, families.task(checkpoint), arguments):
        raise InputError(f"{'; '.join(problems)}.")
    return chosen, loaded(checkpoint, chosen, gpu, engine, arguments)


def title(checkpoint: Checkpoint) -> str:
    """The precision of the stored weights, for people: INT4, FP8, FP8+NVFP4, BF16."""
    kind = checkpoint.quantization
    return kind.title if kind and kind.schemes else checkpoint.dtype.upper()


def choose(
    checkpoint: Checkpoint,
    gpu: Gpu | None,
    engine: Engine,
    *,
    device: str,
    where: str | None = None,
    arguments: Values = MappingProxyType({}),
) -> Precision:
    """Decide by the checkpoint, the hardware and what the engine serves on it; `device` is cuda or cpu.

    `arguments` are the values of the engine's check_arguments.

    With an unknown GPU (None on cuda, or no compute capability) FP8 is not converted, and the reason has why.
    Raises InputError at `where` for FP8 that neither the engine serves on the GPU nor the converter reads.
    """
    if way := _while_loading(checkpoint, engine, arguments):
        return Precision(
            False, way, f"engine_args quantises the weights to {way.upper()} while they are loaded."
        )
    if checkpoint.dtype != "fp8":
        if problems := _solved_by_conversion(checkpoint, gpu, engine, arguments):
            return Precision(True, "bf16", f"{'; '.join(problems)}.")
        kind = checkpoint.quantization
        what = f"quantised ({kind}) and is served as it is" if kind else f"{checkpoint.dtype.upper()} already"
        return Precision(False, checkpoint.dtype, f"The checkpoint is {what}.")
    if device == "cpu":
        obstacle = "the engine's CPU path has no FP8 kernels"
        return _converted(checkpoint, obstacle, "Take a BF16 checkpoint.", where)
    if gpu is None or gpu.compute_capability is None:
        missing = "gpu= (for example gpu=A100-80G)" if gpu is None else "gpu_capability= (for example 8.0)"
        what = "GPU is not known" if gpu is None else f"compute capability of {gpu} is not known"
        return Precision(
            False,
            "fp8",
            f"The checkpoint is {title(checkpoint)} and the {what}: it is served as it is. "
            f"Set {missing} or use --probe to decide by the hardware.",
        )
    least = engine.fp8_capability(checkpoint)
    if least and gpu.reaches(least):
        how = "computes in FP8" if gpu.fp8 else f"has no FP8, but {engine.title} reads FP8 weights there"
        return Precision(False, "fp8", f"The checkpoint is {title(checkpoint)} and {gpu} {how}.")
    if least is None:
        return _converted(checkpoint, f"{engine.title} does not serve this FP8", "Take a BF16 one.", where)
    needed = capability_text(least)
    return _converted(
        checkpoint,
        f"{gpu} has no FP8, which needs {needed} or higher",
        f"Use GPUs of compute capability {needed} or higher, or a checkpoint in BF16, INT8 or AWQ.",
        where,
    )


def _while_loading(checkpoint: Checkpoint, engine: Engine, arguments: Values) -> str | None:
    """What the user's arguments make of an unquantised checkpoint; None where they do not."""
    if checkpoint.dtype not in FLOATS or not arguments:
        return None
    for way in presets.of(engine.name).quantize_on_load:
        values = engine.check_arguments(presets.words(way.arguments)).values
        if values and values.items() <= arguments.items():
            return way.dtype
    return None


def _converted(checkpoint: Checkpoint, obstacle: str, instead: str, where: str | None) -> Precision:
    if checkpoint.convertible:
        return Precision(True, "bf16", f"The checkpoint is FP8 and {obstacle}.")
    why = checkpoint.quantization.obstacle if checkpoint.quantization else "it has no quantization_config"
    raise InputError(
        f"{checkpoint.id} is FP8 ({checkpoint.quantization_name}) and {obstacle}; it cannot be converted to "
        f"BF16 here: {why}.",
        where=where,
        hint=instead,
    )


def _solved_by_conversion(
    checkpoint: Checkpoint, gpu: Gpu | None, engine: Engine, arguments: Values
) -> list[str]:
    """What the engine misses for a checkpoint (MXFP4) that it would serve in BF16; empty where nothing."""
    if not checkpoint.convertible or (gpu is not None and gpu.lacks(BF16_CAPABILITY)):
        return []
    task = checkpoint.tasks[0]
    problems = engine.support_problems(checkpoint, gpu, task, arguments)
    left = engine.support_problems(checkpoint.converted, gpu, task, arguments) if problems else []
    return [] if left else problems
