"""Which models a fleet of GPUs can serve, best first. A pure calculation.

Best first: the model with the most parameters, since a larger one of its kind usually answers better; of
equal models the one with the most bytes a parameter, since precision is lost with fewer; then the one with
the most replicas; then by id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from headfirst.common.errors import InputError
from headfirst.decide.engines.base import Engine
from headfirst.decide.model import families
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.parameters import tensors
from headfirst.decide.model.task import Task
from headfirst.decide.plan.sizing.sizes import Copy, Fleet, best, nodes_needed
from headfirst.decide.plan.weights import precision


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Offer(_Frozen):
    """A model that the GPUs can serve, and the inventory lines that do it."""

    model: str
    task: Task
    parameters: int
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
    max_context: int
    weight_bytes: int
    weights_seconds: float  # until every node has proven its copy
    lines: list[str]


class Refusal(_Frozen):
    """A model that they cannot serve, and why."""

    model: str
    task: Task
    reason: str


class Models(_Frozen):
    """What `deploy models` prints."""

    gpu: str
    nodes: int
    gpus_per_node: int
    engine: str
    engine_version: str
    offers: list[Offer]
    refused: list[Refusal]


def _precision(checkpoint: Checkpoint, served: str) -> str:
    scheme = checkpoint.quantization.scheme if checkpoint.quantization else ""
    stored = (scheme or checkpoint.dtype).upper()
    return stored if served == checkpoint.dtype else f"{stored}→{served.upper()}"


def survey(
    fleet: Fleet,
    engine: Engine,
    checkpoints: Iterable[Checkpoint],
    *,
    task: Task | None,
    seconds: Callable[[Checkpoint, bool], float],
    base_lines: Sequence[str] = (),
) -> Models:
    """Every checkpoint as an offer or a refusal. `task`: only models for this; None for all.

    `seconds(checkpoint, convert)` estimates the time of the weights; `base_lines` begin the lines of each
    offer, after `model=`.
    """
    offers: list[Offer] = []
    refused: list[Refusal] = []
    for checkpoint in checkpoints:
        its = families.task(checkpoint)
        if task is not None and its != task:
            continue
        try:
            served = precision.choose(checkpoint, fleet.gpu, engine, device="cuda")
        except InputError as error:
            refused.append(Refusal(model=checkpoint.id, task=its, reason=error.what))
            continue
        described = checkpoint.converted if served.convert_to_bf16 else checkpoint
        if problems := engine.support_problems(described, fleet.gpu, its, {}):
            refused.append(Refusal(model=checkpoint.id, task=its, reason=f"{'; '.join(problems)}."))
            continue
        copy = best(checkpoint, fleet, engine, dtype=served.dtype)
        if copy is None:
            reason = _too_large(checkpoint, fleet, engine, served.dtype)
            refused.append(Refusal(model=checkpoint.id, task=its, reason=reason))
            continue
        offers.append(
            Offer(
                model=checkpoint.id,
                task=its,
                parameters=parameters(checkpoint),
                checkpoint_dtype=checkpoint.dtype,
                dtype=served.dtype,
                precision=_precision(checkpoint, served.dtype),
                convert_to_bf16=served.convert_to_bf16,
                tensor_parallel=copy.layout.tensor,
                pipeline_parallel=copy.layout.pipeline,
                nodes_per_replica=copy.machines.nodes,
                gpus_per_node=copy.machines.ranks_per_node or 1,
                replicas=copy.count(fleet),
                kv_tokens=copy.kv_tokens,
                max_context=checkpoint.max_context,
                weight_bytes=checkpoint.bf16_bytes if served.convert_to_bf16 else checkpoint.total_bytes,
                weights_seconds=seconds(checkpoint, served.convert_to_bf16),
                lines=lines(checkpoint, copy, fleet, base_lines),
            )
        )
    offers.sort(key=_order)
    return Models(
        gpu=fleet.gpu.name,
        nodes=fleet.nodes,
        gpus_per_node=fleet.gpus_per_node,
        engine=engine.name,
        engine_version=engine.version,
        offers=offers,
        refused=sorted(refused, key=lambda refusal: refusal.model),
    )


def parameters(checkpoint: Checkpoint) -> int:
    """Parameters of the model; of an unknown architecture half its bytes in BF16."""
    stored_tensors = tensors(checkpoint)
    return (
        sum(tensor.parameters for tensor in stored_tensors) if stored_tensors else checkpoint.bf16_bytes // 2
    )


def lines(checkpoint: Checkpoint, copy: Copy, fleet: Fleet, base: Sequence[str] = ()) -> list[str]:
    """The inventory lines under [all:vars] that serve the model so."""
    layout = copy.layout
    settings = [f"model={checkpoint.id}", *base, f"tensor_parallel={layout.tensor}"]
    if layout.pipeline > 1:
        settings.append(f"pipeline_parallel={layout.pipeline}")
    if (count := copy.count(fleet)) > 1 or copy.machines.gpus != fleet.nodes * fleet.gpus_per_node:
        settings += [f"replicas={count}", f"gpus_per_replica={copy.machines.gpus}"]
    if copy.context_flag:
        # A multiple of 1024 below what fits, so that the engine starts.
        settings.append(f'engine_args="{copy.context_flag} {max(1, copy.longest // 1024) * 1024}"')
    return settings


def _order(offer: Offer) -> tuple[float, float, int, str]:
    return (-offer.parameters, -offer.weight_bytes / offer.parameters, -offer.replicas, offer.model)


def _too_large(checkpoint: Checkpoint, fleet: Fleet, engine: Engine, dtype: str) -> str:
    needed = nodes_needed(checkpoint, fleet, engine, dtype=dtype)
    kind = f"{fleet.gpus_per_node} × {fleet.gpu.name}"
    if needed is None:
        return f"It does not fit in {dtype.upper()} on any number of nodes with {kind}."
    return f"It needs {needed} nodes with {kind} in {dtype.upper()}."
