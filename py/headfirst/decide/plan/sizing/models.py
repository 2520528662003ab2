"""Which models a fleet of GPUs can serve, best first. A pure calculation.

The order is `ORDER`: the task; whether the KV cache holds one long request; whether the GPUs compute in the
precision, where NVFP4 is unpacked before Blackwell; size and age together, where a
model that is a year newer counts as one of twice the parameters; of one model the copy with 16, 8, then 4
bits a parameter, since precision is lost with fewer; the publisher's own before one of somebody else, who has
quantised it once more; then the most replicas; then the id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import log2
from typing import get_args

from headfirst.common.errors import InputError
from headfirst.decide.engines.base import Engine
from headfirst.decide.engines.layout import Machines
from headfirst.decide.frozen import Frozen
from headfirst.decide.model import catalogue, families, releases
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.parameters import parameters
from headfirst.decide.model.task import Task
from headfirst.decide.plan.sizing import parallel
from headfirst.decide.plan.sizing.sizes import Copies, Copy, Fleet
from headfirst.decide.plan.trial import ServiceTrial, UnfitError
from headfirst.decide.plan.types import Fit
from headfirst.decide.plan.weights import precision

ORDER = (
    "the task, then a KV cache for a long request, then NVFP4 last where the GPUs do not compute in it, then "
    "parameters and age (a year newer counts as twice the parameters), then precision, then the publisher's "
    "own copy, then replicas"
)
_NEXT_WIDTH = 0.75  # of a width: scales and parts that are not quantised make checkpoints larger


class Offer(Frozen):
    """A model that the GPUs can serve, and the inventory lines that do it."""

    model: str
    task: Task
    parameters: int
    released: str | None  # 2025-07, or 2024 where no month is known
    checkpoint_dtype: str
    dtype: str  # what is served
    precision: str  # of the weights, for people: INT4, FP8→BF16 where they are converted
    convert_to_bf16: bool
    tensor_parallel: int
    pipeline_parallel: int
    nodes_per_replica: int
    gpus_per_node: int  # of one replica
    replicas: int
    kv_tokens: int  # of one replica
    long_request: bool  # whether these hold one of parallel.ENOUGH_TOKENS, or of the longest context
    max_context: int
    weight_bytes: int
    weights_seconds: float  # until every node has proven its copy
    lines: list[str]


class Refusal(Frozen):
    """A model that they cannot serve, and why."""

    model: str
    task: Task
    reason: str


class Models(Frozen):
    """What `deploy models` prints."""

    gpu: str
    nodes: int
    gpus_per_node: int
    engine: str
    engine_version: str
    offers: list[Offer]
    refused: list[Refusal]


def _precision(checkpoint: Checkpoint, served: str) -> str:
    stored = precision.title(checkpoint)
    return stored if served == checkpoint.dtype else f"{stored}→{served.upper()}"


def survey(
    fleet: Fleet,
    engine: Engine,
    checkpoints: Iterable[Checkpoint],
    *,
    task: Task | None,
    seconds: Callable[[Checkpoint, bool], float],
    trial: ServiceTrial,
    base: Mapping[str, object] | None = None,
) -> Models:
    """Every checkpoint as an offer or a refusal. `task`: only models for this; None for all.

    `seconds(checkpoint, convert)` estimates the time of the weights; `trial` makes the plan of an offer, and
    may refuse it; `base` are settings of each offer, after the model.
    """
    offers: list[Offer] = []
    unpacked: set[str] = set()
    refused: list[Refusal] = []
    for checkpoint in checkpoints:
        checkpoint_task = families.task(checkpoint)
        if task is not None and checkpoint_task != task:
            continue
        try:
            served, copy = candidate(checkpoint, fleet, engine, trial, base or {})
            chosen = {"model": checkpoint.id, **(base or {}), **copy.settings(copy.replicas(fleet))}
            chosen, fit = _with_code(trial, checkpoint, chosen)
        except InputError as error:
            refused.append(Refusal(model=checkpoint.id, task=checkpoint_task, reason=error.what))
            continue
        tokens = fit.kv_tokens_of_replica or 0
        if (stored := checkpoint.quantization) and fleet.gpu.lacks(stored.units):
            unpacked.add(checkpoint.id)
        offers.append(
            Offer(
                model=checkpoint.id,
                task=checkpoint_task,
                parameters=parameters(checkpoint),
                released=catalogue.released(checkpoint.id),
                checkpoint_dtype=checkpoint.dtype,
                dtype=served.dtype,
                precision=_precision(checkpoint, served.dtype),
                convert_to_bf16=served.convert_to_bf16,
                tensor_parallel=copy.candidate.layout.tensor,
                pipeline_parallel=copy.candidate.layout.pipeline,
                nodes_per_replica=copy.machines.nodes,
                gpus_per_node=copy.machines.ranks_per_node or 1,
                replicas=fleet.count(copy.machines),
                kv_tokens=tokens,
                long_request=tokens >= parallel.enough(fit.context),
                max_context=checkpoint.max_context,
                weight_bytes=checkpoint.bf16_bytes if served.convert_to_bf16 else checkpoint.total_bytes,
                weights_seconds=seconds(checkpoint, served.convert_to_bf16),
                lines=lines(chosen),
            )
        )
    offers.sort(key=lambda offer: _order(offer, unpacked=offer.model in unpacked))
    return Models(
        gpu=fleet.gpu.name,
        nodes=fleet.nodes,
        gpus_per_node=fleet.gpus_per_node,
        engine=engine.name,
        engine_version=engine.version,
        offers=offers,
        refused=sorted(refused, key=lambda refusal: refusal.model),
    )


def _with_code(
    trial: ServiceTrial, checkpoint: Checkpoint, settings: dict[str, object], machines: Machines | None = None
) -> tuple[dict[str, object], Fit]:
    """As Trial.starting, with the model's code where it needs that."""
    try:
        return trial.starting(checkpoint, settings, machines)
    except InputError as error:
        if not checkpoint.remote_code:
            raise
        try:
            return trial.starting(checkpoint, {**settings, "trust_remote_code": True}, machines)
        except InputError:
            raise error from None


def candidate(
    checkpoint: Checkpoint, fleet: Fleet, engine: Engine, trial: ServiceTrial, base: Mapping[str, object]
) -> tuple[precision.Precision, Copy]:
    """What is served of the checkpoint, in the type that is computed, and its copy.

    InputError where the fleet serves none, with the number of nodes that would.
    """
    served, loaded = precision.served(checkpoint, fleet.gpu, engine)
    copies = Copies(loaded.checkpoint, fleet, engine, loaded.dtype)
    if copy := copies.best():
        return replace(served, dtype=loaded.dtype), copy
    stored = _precision(checkpoint, loaded.dtype).rpartition("→")[2]
    kind = f"{fleet.gpus_per_node} × {fleet.gpu.name}"
    for copy in copies.on_more_nodes():
        settings = {"model": checkpoint.id, **base, **copy.settings(None)}
        try:
            _with_code(trial, checkpoint, settings, copy.machines)
        except UnfitError:
            continue
        raise InputError(f"It needs {copy.machines.nodes} nodes with {kind} in {stored}.")
    raise InputError(f"It does not fit in {stored} on any number of nodes with {kind}.")


def lines(settings: Mapping[str, object]) -> list[str]:
    """The settings as lines of an inventory, under [all:vars]."""
    return [f"{name}={_value(value)}" for name, value in settings.items()]


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return f'"{text}"' if " " in text and '"' not in text else text


def group_of(task: Task) -> str:
    """What models of the task are chosen for: one that takes images answers a chat without them, too."""
    return "chat" if task == "vision" else task


def _order(offer: Offer, *, unpacked: bool) -> tuple[int, bool, bool, float, int, bool, int, str]:
    quality = log2(offer.parameters) + releases.year(offer.released)
    bits = 8 * offer.weight_bytes / offer.parameters
    width = next((width for width in (16, 8) if bits > _NEXT_WIDTH * width), 4)
    copied = catalogue.publisher(offer.model) != offer.model.partition("/")[0]
    groups = list(dict.fromkeys(map(group_of, get_args(Task))))
    group = groups.index(group_of(offer.task))
    short = not offer.long_request
    return (group, short, unpacked, -quality, -width, copied, -offer.replicas, offer.model)
