"""How many of these GPUs one copy of a model gets. A pure calculation.

A copy has a divisor of a node's GPUs, so that copies share the node without a rest, or whole nodes. It is the
smallest that is large enough, and of which those of a node keep enough of the KV cache that one would have;
nodes that are too few for one more copy go to those that there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headfirst.common.errors import InputError
from headfirst.decide.engines.base import Engine
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.engines.presets import Preset
from headfirst.decide.hardware.gpus import Gpu
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.sizing import parallel
from headfirst.decide.plan.sizing.fit import memory_of

# Numbers of nodes that are tried for a model that the given ones cannot hold.
_MORE_NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


@dataclass(frozen=True)
class Fleet:
    """The GPUs that may be used: `nodes` hosts with `gpus_per_node` each, all of one kind.

    `rdma`: whether the nodes are connected by it; None is not known.
    """

    gpu: Gpu
    nodes: int
    gpus_per_node: int
    rdma: bool | None = None


@dataclass(frozen=True)
class Copy:
    """One copy of a model: its hosts, its layout and its KV cache."""

    machines: Machines
    layout: Layout
    kv_tokens: int  # of all groups of its ranks
    longest: int  # tokens of a request
    context_flag: str | None  # the engine ends at start unless this sets at most `longest`

    @property
    def context(self) -> int:
        """A multiple of 1024 tokens below `longest`, so that the engine starts."""
        return max(1, self.longest // 1024) * 1024

    def count(self, fleet: Fleet) -> int:
        """How many such copies the fleet holds."""
        return _count(self.machines, fleet)

    def tokens(self, fleet: Fleet) -> int:
        """Tokens that the KV caches of all these copies hold."""
        return self.kv_tokens * self.count(fleet)


def _count(machines: Machines, fleet: Fleet) -> int:
    gpus = machines.ranks_per_node or 1
    return (fleet.nodes // machines.nodes) * (fleet.gpus_per_node // gpus)


def best(
    checkpoint: Checkpoint, fleet: Fleet, engine: Engine, *, dtype: str, preset: Preset | None = None
) -> Copy | None:
    """The copy that is large enough and of which the fleet holds the most, else the one with the largest KV
    cache; None where the fleet holds no copy. `dtype` is what is served."""
    node = copy_on(checkpoint, fleet, Machines(1, fleet.gpus_per_node), engine, dtype, preset)
    least = parallel.COPIES_SHARE * (node.tokens(fleet) if node else 0)
    largest: Copy | None = None
    chosen: Copy | None = None
    for machines in _machines(fleet):  # the more GPUs, the fewer copies
        if chosen is not None and _count(machines, fleet) < chosen.count(fleet):
            break
        copy = (
            node
            if node and machines == node.machines
            else copy_on(checkpoint, fleet, machines, engine, dtype, preset)
        )
        if copy is None:
            continue
        if copy.longest >= parallel.enough(checkpoint) and copy.tokens(fleet) >= least:
            chosen = copy
        if largest is None or copy.kv_tokens > largest.kv_tokens:
            largest = copy
    return chosen or largest


def copy_on(
    checkpoint: Checkpoint,
    fleet: Fleet,
    machines: Machines,
    engine: Engine,
    dtype: str,
    preset: Preset | None = None,
) -> Copy | None:
    """The copy on these machines; None where they hold none."""
    # The weights alone, evenly shared, are a lower limit that needs no layout.
    grows = dtype in (checkpoint.dtype, "bf16")
    if grows and checkpoint.total_bytes > fleet.gpu.memory_bytes * (machines.gpus or 1):
        return None
    memories = memory_of(checkpoint, fleet.gpu, engine, dtype=dtype)
    spread = parallel.Spread(checkpoint, machines, engine, {}, dtype, fleet.rdma, preset, memory=memories)
    try:
        candidate = spread.choose().candidate
    except InputError:  # the model cannot be spread evenly over these GPUs
        return None
    longest, its = candidate.longest, candidate.memory
    if its is None or not longest:
        return None
    flag = its.use.context_flag if longest < its.context else None
    return Copy(machines, candidate.layout, candidate.tokens, longest, flag)


def replicas_rejected(copy: Copy, fleet: Fleet) -> str:
    """Why the layout has one replica, where the fleet holds several of this copy; "" where it does not."""
    count, gpus = copy.count(fleet), copy.machines.gpus or 1
    if count == 1:
        return ""
    return (
        f"{count} replicas are not chosen: the inventory sets no replicas. replicas={count} with "
        f"gpus_per_replica={gpus} serve more requests at a time, each of them slower, and keep "
        f"{copy.tokens(fleet):,} tokens in all."
    )


def on_fewest_nodes(checkpoint: Checkpoint, fleet: Fleet, engine: Engine, *, dtype: str) -> Copy | None:
    """The copy on the fewest nodes of this kind that hold one; None where 32 do not."""
    machines = (Machines(nodes, fleet.gpus_per_node) for nodes in _MORE_NODES)
    copies = (copy_on(checkpoint, fleet, its, engine, dtype) for its in machines)
    return next((copy for copy in copies if copy is not None), None)


def _machines(fleet: Fleet) -> Iterator[Machines]:
    for gpus in range(1, fleet.gpus_per_node + 1):
        if fleet.gpus_per_node % gpus == 0:
            yield Machines(1, gpus)
    for nodes in range(2, fleet.nodes + 1):
        yield Machines(nodes, fleet.gpus_per_node)
