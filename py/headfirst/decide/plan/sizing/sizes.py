"""How many of these GPUs one copy of a model gets. A pure calculation.

A copy has a divisor of a node's GPUs, so that copies share the node without a rest, or whole nodes. It is the
smallest that is large enough, and of which those of a node keep enough of the KV cache that one would have;
nodes that are too few for one more copy go to those that there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from headfirst.common.errors import InputError
from headfirst.decide.engines.base import Engine, Values
from headfirst.decide.engines.layout import Machines
from headfirst.decide.engines.presets import Preset
from headfirst.decide.hardware.gpus import Gpu
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.sizing import parallel
from headfirst.decide.plan.sizing.fit import memory_of
from headfirst.decide.plan.sizing.ways import LayoutCandidate

# What is tried for a model that the given GPUs cannot hold.
_GPUS_OF_A_NODE = 8
_NODES = (2, 3, 4, 6, 8, 12, 16, 24, 32)


@dataclass(frozen=True)
class Fleet:
    """The GPUs that may be used: `nodes` hosts with `gpus_per_node` each, all of one kind.

    `rdma`: whether the nodes are connected by it; None is not known.
    """

    gpu: Gpu
    nodes: int
    gpus_per_node: int
    rdma: bool | None = None

    def count(self, machines: Machines) -> int:
        """How many copies with these machines it holds."""
        return copies_on([self.gpus_per_node] * self.nodes, machines)


def copies_on(hosts: Sequence[int], machines: Machines) -> int:
    """How many copies with these machines hosts with so many GPUs hold."""
    copies = [gpus // (machines.ranks_per_node or 1) for gpus in hosts]
    return sum(copies) if machines.nodes == 1 else sum(map(bool, copies)) // machines.nodes


@dataclass(frozen=True)
class Copy:
    """One copy of a model: its hosts, its layout and its KV cache."""

    machines: Machines
    candidate: LayoutCandidate

    def settings(self, replicas: int | None) -> dict[str, object]:
        """What the inventory sets for so many of it; `replicas` None: one on all GPUs."""
        chosen: dict[str, object] = {}
        layout = self.candidate.layout
        if layout.data == 1:  # else the plan finds the groups again, which no size states
            chosen["tensor_parallel"] = layout.tensor
        if layout.pipeline > 1:
            chosen["pipeline_parallel"] = layout.pipeline
        if replicas is not None:
            chosen |= {"replicas": replicas, "gpus_per_replica": self.machines.gpus}
        return chosen

    def replicas(self, fleet: Fleet) -> int | None:
        """How many the fleet holds; None where one has all its GPUs."""
        return None if self.machines.gpus == fleet.nodes * fleet.gpus_per_node else fleet.count(self.machines)

    def tokens(self, fleet: Fleet) -> int:
        """Tokens that the KV caches of all these copies hold."""
        return self.candidate.tokens * fleet.count(self.machines)


@dataclass(frozen=True)
class Copies:
    """Copies of a checkpoint, served as `dtype`, on GPUs of a fleet. `values` are those of the engine's
    check_arguments.

    These choose machines; what a copy holds exactly is in the plan of its settings (plan/trial.py).
    """

    checkpoint: Checkpoint
    fleet: Fleet
    engine: Engine
    dtype: str
    preset: Preset | None = None
    values: Values = field(default_factory=dict)

    def best(self) -> Copy | None:
        """The copy that is large enough and of which the fleet holds the most, else the one with the largest
        KV cache; None where the fleet holds no copy."""
        fleet = self.fleet
        node = self.on(Machines(1, fleet.gpus_per_node))
        least = parallel.COPIES_SHARE * (node.tokens(fleet) if node else 0)
        largest: Copy | None = None
        chosen: Copy | None = None
        for machines in _machines(fleet):  # the more GPUs, the fewer copies
            if chosen is not None and fleet.count(machines) < fleet.count(chosen.machines):
                break
            copy = node if node and machines == node.machines else self.on(machines)
            if copy is None:
                continue
            long = copy.candidate.longest >= parallel.enough(copy.candidate.context)
            if long and copy.tokens(fleet) >= least:
                chosen = copy
            if largest is None or copy.candidate.tokens > largest.candidate.tokens:
                largest = copy
        return chosen or largest

    def on(self, machines: Machines) -> Copy | None:
        """The copy on these machines; None where they hold none."""
        checkpoint, gpu = self.checkpoint, self.fleet.gpu
        # The weights alone, evenly shared, are a lower limit that needs no layout.
        grows = self.dtype in (checkpoint.dtype, "bf16")
        if grows and checkpoint.total_bytes > gpu.memory_bytes * (machines.gpus or 1):
            return None
        memories = memory_of(checkpoint, gpu, self.engine, dtype=self.dtype)
        spread = parallel.LayoutChooser(
            *(checkpoint, machines, self.engine, self.values, self.dtype, self.fleet.rdma, self.preset),
            memory=memories,
        )
        try:
            candidate = spread.choose().candidate
        except InputError:  # the model cannot be spread evenly over these GPUs
            return None
        return Copy(machines, candidate) if candidate.longest else None

    def on_more_gpus(self, of_host: int) -> Iterator[Copy]:
        """In the one node of the fleet with more GPUs, then on more nodes with the GPUs of a host."""
        fleet = self.fleet
        more = range(fleet.gpus_per_node + 1, _GPUS_OF_A_NODE + 1) if fleet.nodes == 1 else ()
        yield from filter(None, (self.on(Machines(1, gpus)) for gpus in more))
        yield from replace(self, fleet=replace(fleet, gpus_per_node=of_host)).on_more_nodes()

    def on_more_nodes(self) -> Iterator[Copy]:
        """On more such nodes than the fleet has."""
        fleet = self.fleet
        more = (count for count in _NODES if count > fleet.nodes)
        yield from filter(None, (self.on(Machines(count, fleet.gpus_per_node)) for count in more))


def _machines(fleet: Fleet) -> Iterator[Machines]:
    for gpus in range(1, fleet.gpus_per_node + 1):
        if fleet.gpus_per_node % gpus == 0:
            yield Machines(1, gpus)
    for nodes in range(2, fleet.nodes + 1):
        yield Machines(nodes, fleet.gpus_per_node)
