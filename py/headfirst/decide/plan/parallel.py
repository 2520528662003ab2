"""The layout of a replica: tensor and pipeline parallel sizes, chosen or checked by the engine's rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headfirst.common.errors import InputError
from headfirst.decide.engines.base import Engine
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.model.checkpoint import Checkpoint

# Every stage is a hop more for every token; nobody is served well by more of them unasked.
MOST_STAGES = 8
# A KV cache of less than this many tokens, or than the model's context, needs another layout.
ENOUGH_TOKENS = 32_768

# Tokens of KV cache that a rank has left with a layout; 0 where the weights alone are too large.
Tokens = Callable[[Layout], int]


def choose(
    checkpoint: Checkpoint,
    machines: Machines,
    engine: Engine,
    values: Mapping[str, Any],
    *,
    dtype: str,
    tensor: int | None = None,
    pipeline: int | None = None,
    rdma: bool | None = None,
    tokens: Tokens | None = None,
    where: str | None = None,
) -> Layout:
    """The layout to serve with; `tensor` and `pipeline` are the user's wishes and are only checked.

    Without wishes: all GPUs, with the fewest pipeline stages that leave enough KV cache. `rdma` False (the
    nodes are connected by TCP alone) puts the stages, and not the tensor ranks, on different nodes; None is
    not known. `tokens` None: the GPUs' memory is not known. `values` are those of the engine's
    check_arguments; `dtype` is what is served. Raises InputError with the valid values, at `where`.
    """
    if tensor is not None:
        wanted = engine.layout(tensor, pipeline or 1, values)
        problems = check(checkpoint, machines, wanted, engine, values, dtype=dtype)
        if problems:
            raise InputError(
                f"tensor_parallel={wanted.tensor} with pipeline_parallel={wanted.pipeline} cannot serve "
                f"{checkpoint.id}: {'; '.join(problems)}.",
                where=where,
                hint=_valid_hint(checkpoint, machines, wanted.pipeline, engine, values, dtype),
            )
        return wanted
    found = _candidates(checkpoint, machines, engine, values, dtype=dtype, pipeline=pipeline, rdma=rdma)
    if found:
        return found[0] if tokens is None else _roomy(checkpoint, machines, found, tokens)
    raise _impossible(
        checkpoint,
        machines,
        engine,
        values,
        dtype=dtype,
        pipeline=pipeline,
        rdma=rdma,
        tokens=tokens,
        where=where,
    )


def _impossible(
    checkpoint: Checkpoint,
    machines: Machines,
    engine: Engine,
    values: Mapping[str, Any],
    *,
    dtype: str,
    pipeline: int | None,
    rdma: bool | None,
    tokens: Tokens | None,
    where: str | None,
) -> InputError:
    """Why no layout uses all GPUs, and what would."""
    stages = pipeline or 1
    tried = engine.layout(_world(machines, engine, values) // stages, stages, values)
    why = "; ".join(check(checkpoint, machines, tried, engine, values, dtype=dtype))
    fewer = None
    if tokens is not None and pipeline is None:
        fewer = fewer_nodes(checkpoint, machines, engine, values, dtype=dtype, rdma=rdma, tokens=tokens)
    return InputError(
        f"{checkpoint.id} cannot be spread evenly over all of {machines}"
        + (f" with pipeline_parallel={pipeline}" if pipeline else "")
        + (f": {why}." if why else "."),
        where=where,
        hint=replicas_hint(machines, fewer)
        if fewer
        else _valid_hint(checkpoint, machines, stages, engine, values, dtype),
    )


def fewer_nodes(
    checkpoint: Checkpoint,
    machines: Machines,
    engine: Engine,
    values: Mapping[str, Any],
    *,
    dtype: str,
    rdma: bool | None = None,
    tokens: Tokens,
) -> int | None:
    """The fewest nodes on which the model fits with enough KV cache; None where that is more than half."""
    for nodes in range(1, machines.nodes // 2 + 1):
        part = Machines(nodes, machines.ranks_per_node)
        found = _candidates(checkpoint, part, engine, values, dtype=dtype, pipeline=None, rdma=rdma)
        if any(tokens(layout) >= enough(checkpoint) for layout in found):
            return nodes
    return None


def replicas_hint(machines: Machines, nodes: int) -> str:
    """A sentence for people: how many replicas of `nodes` nodes these machines make."""
    copies, rest = divmod(machines.nodes, nodes)
    one = f"{nodes} node{'s' if nodes > 1 else ''}"
    if rest == 0:
        return f"The model fits on {one}: replicas={copies} serves {copies} copies of it."
    return (
        f"The model fits on {one}: {copies * nodes} of these {machines.nodes} nodes, with replicas={copies}, "
        f"serve {copies} copies of it."
    )


def _candidates(
    checkpoint: Checkpoint,
    machines: Machines,
    engine: Engine,
    values: Mapping[str, Any],
    *,
    dtype: str,
    pipeline: int | None,
    rdma: bool | None,
) -> list[Layout]:
    """Layouts that use all GPUs, the preferred first."""
    world = _world(machines, engine, values)
    # Not more stages than nodes, or two within one.
    most = min(max(machines.nodes, 2), MOST_STAGES)
    found = []
    for stages in [pipeline] if pipeline else range(1, most + 1):
        wanted = engine.layout(world // stages, stages, values)
        uses_all = wanted.world == (machines.gpus or machines.nodes)
        if uses_all and not check(checkpoint, machines, wanted, engine, values, dtype=dtype):
            found.append(wanted)
    if rdma is False and machines.ranks_per_node is not None:
        limit = machines.ranks_per_node
        found.sort(key=lambda layout: (layout.tensor > limit, layout.pipeline))
    return found


def _world(machines: Machines, engine: Engine, values: Mapping[str, Any]) -> int:
    """Ranks of one of the copies that the user's arguments ask for."""
    return (machines.gpus or machines.nodes) // engine.layout(1, 1, values).data


def _roomy(checkpoint: Checkpoint, machines: Machines, found: list[Layout], tokens: Tokens) -> Layout:
    """The first layout with enough KV cache, else the one with the most."""
    room = {layout: tokens(layout) for layout in found}
    # Within a node the fewest stages win, if the model fits at all.
    least = enough(checkpoint) if machines.nodes > 1 else 1
    return next((layout for layout in found if room[layout] >= least), max(found, key=lambda one: room[one]))


def enough(checkpoint: Checkpoint) -> int:
    """Tokens of KV cache with which a copy is large enough: a long request, or the model's longest."""
    return min(ENOUGH_TOKENS, checkpoint.max_context)


def check(
    checkpoint: Checkpoint,
    machines: Machines,
    wanted: Layout,
    engine: Engine,
    values: Mapping[str, Any],
    *,
    dtype: str,
) -> list[str]:
    """Why `wanted` cannot serve, one clause each; empty when it can."""
    if wanted.tensor < 1 or wanted.pipeline < 1:
        return ["sizes start at 1"]
    if problems := _against_machines(machines, wanted):
        return problems
    return engine.layout_problems(checkpoint, machines, wanted, dtype=dtype, values=values)


def valid_tensor_sizes(
    checkpoint: Checkpoint,
    machines: Machines,
    engine: Engine,
    values: Mapping[str, Any],
    *,
    pipeline: int,
    dtype: str,
) -> list[int]:
    """All tensor parallel sizes that pass `check` with this many pipeline stages."""
    limit = machines.gpus or machines.nodes * checkpoint.attention_heads
    return [
        size
        for size in range(1, limit + 1)
        if not check(checkpoint, machines, engine.layout(size, pipeline, values), engine, values, dtype=dtype)
    ]


def _against_machines(machines: Machines, wanted: Layout) -> list[str]:
    if wanted.world % machines.nodes:
        return [f"{wanted.world} ranks cannot be spread evenly over {machines.nodes} nodes"]
    if machines.gpus is not None and wanted.world > machines.gpus:
        return [f"it needs {wanted.world} GPUs and {machines} are {machines.gpus}"]
    return []


def _valid_hint(
    checkpoint: Checkpoint,
    machines: Machines,
    pipeline: int,
    engine: Engine,
    values: Mapping[str, Any],
    dtype: str,
) -> str:
    sizes = valid_tensor_sizes(checkpoint, machines, engine, values, pipeline=pipeline, dtype=dtype)
    if not sizes:
        return f"With pipeline_parallel={pipeline} no tensor_parallel works there: change stages or nodes."
    listed = ", ".join(map(str, sizes))
    return f"On {machines}, with pipeline_parallel={pipeline}, tensor_parallel can be {listed}."
