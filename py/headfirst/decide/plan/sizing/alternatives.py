"""What would work where a model does not fit: another precision, more nodes, a smaller model. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from headfirst.common import quantization
from headfirst.common.errors import InputError
from headfirst.decide.engines import presets
from headfirst.decide.engines.base import Engine
from headfirst.decide.model import families
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.sizing.sizes import Copy, Fleet, best, nodes_needed
from headfirst.decide.plan.weights import precision

_UNQUANTISED = ("bf16", "fp16", "fp32")
# What publishers append to a model's name beside a scheme's name: Qwen3-32B-AWQ, Llama-3.1-8B-quantized.w8a8.
_SUFFIXES = r"fp4|w\d+a\d+|quantized|bf16|fp16|dynamic|kv|v2|block|channel"
_MOST = 3  # sentences of a kind


def alternatives(
    checkpoint: Checkpoint, fleet: Fleet, engine: Engine, others: Iterable[Checkpoint], *, dtype: str
) -> list[str]:
    """Sentences, the one that changes least first; empty where nothing is known to work.

    `others` are the checkpoints that may be proposed, `dtype` is what would be served.
    """
    known = [other for other in others if other.id.lower() != checkpoint.id.lower()]
    sentences = _other_precisions(checkpoint, fleet, engine, known)
    sentences += _quantised_on_load(checkpoint, fleet, engine)
    nodes = nodes_needed(checkpoint, fleet, engine, dtype=dtype)
    if nodes is not None and nodes > fleet.nodes:
        sentences.append(f"{nodes} nodes with {fleet.gpus_per_node} × {fleet.gpu.name} each hold it.")
    return sentences + _smaller(checkpoint, fleet, engine, known)


def base_name(id: str) -> str:
    """The model's name without publisher and precision: the same for all checkpoints of one model."""
    precision = rf"[-_.](?:{'|'.join(map(re.escape, quantization.names()))}|{_SUFFIXES})(?=[-_.]|$)"
    return re.sub(precision, "", id.rstrip("/").rpartition("/")[2].lower().removeprefix("meta-"))


def _other_precisions(
    checkpoint: Checkpoint, fleet: Fleet, engine: Engine, known: Sequence[Checkpoint]
) -> list[str]:
    """Published checkpoints of the same model that fit, the largest first."""
    name = base_name(checkpoint.id)
    same = [(other, copy) for other, copy in _fitting(fleet, engine, known) if base_name(other.id) == name]
    same.sort(key=lambda pair: -pair[0].total_bytes)
    return [
        f"model={other.id} is the same model in {other.dtype.upper()} and fits with "
        f"tensor_parallel={copy.layout.tensor}."
        for other, copy in same[:_MOST]
    ]


def _quantised_on_load(checkpoint: Checkpoint, fleet: Fleet, engine: Engine) -> list[str]:
    if checkpoint.dtype not in _UNQUANTISED:
        return []
    advice = []
    for way in presets.quantizations(engine.name):
        if not fleet.gpu.reaches(way.capability):
            continue
        copy = best(checkpoint, fleet, engine, dtype=way.dtype)
        if copy is not None:
            words = " ".join(presets.words(way.arguments))
            advice.append(
                f'engine_args="{words}" converts it to {way.dtype.upper()} while it loads, which fits with '
                f"tensor_parallel={copy.layout.tensor}."
            )
    return advice


def _smaller(checkpoint: Checkpoint, fleet: Fleet, engine: Engine, known: Sequence[Checkpoint]) -> list[str]:
    """The largest other model of the same family that fits."""
    family = families.find(checkpoint)
    if family is None:
        return []
    name = base_name(checkpoint.id)
    relatives = [
        other
        for other in known
        if base_name(other.id) != name
        and other.total_bytes < checkpoint.total_bytes
        and (its := families.find(other)) is not None
        and its.name == family.name
    ]
    fitting = _fitting(fleet, engine, relatives)
    if not fitting:
        return []
    largest = max(fitting, key=lambda pair: pair[0].total_bytes)[0]
    return [f"model={largest.id}, a smaller model of the same family, fits."]


def _fitting(fleet: Fleet, engine: Engine, known: Iterable[Checkpoint]) -> list[tuple[Checkpoint, Copy]]:
    fitting = []
    for other in known:
        try:
            served = precision.choose(other, fleet.gpu, engine, device="cuda")
        except InputError:  # FP8 that neither the GPU serves nor the converter reads
            continue
        described = other.converted if served.convert_to_bf16 else other
        if engine.support_problems(described, fleet.gpu, families.task(other), {}):
            continue
        if (copy := best(other, fleet, engine, dtype=served.dtype)) is not None:
            fitting.append((other, copy))
    return fitting


def unfit_hint(sentences: Sequence[str]) -> str:
    """What to type next where the model cannot be served as asked."""
    listed = " ".join(sentences) or "No other precision or number of nodes fits."
    return (
        f"{listed} `deploy models` lists what these GPUs can serve; `deploy plan` shows the memory of a GPU."
    )
