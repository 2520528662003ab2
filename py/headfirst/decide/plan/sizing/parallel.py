"""The layout of a replica: tensor and pipeline parallel sizes, chosen or checked by the engine's rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headfirst.common.errors import InputError
from headfirst.decide.engines.base import CacheRoom, Engine
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.model.checkpoint import Checkpoint

# Every stage is a hop more for every token; nobody is served well by more of them unasked.
MOST_STAGES = 8
# A KV cache of less than this many tokens, or than the model's context, needs another layout.
ENOUGH_TOKENS = 32_768

# What the KV cache of a rank holds with a layout; no tokens where the weights alone are too large.
Room = Callable[[Layout], CacheRoom]


@dataclass(frozen=True)
class Spread:
    """A checkpoint, served as `dtype`, that is spread over machines.

    `values` are those of the engine's check_arguments. `rdma` False: the nodes are connected by TCP alone;
    None is not known. `room` None: the GPUs' memory is not known.
    """

    checkpoint: Checkpoint
    machines: Machines
    engine: Engine
    values: Mapping[str, Any]
    dtype: str
    rdma: bool | None = None
    room: Room | None = None

    def choose(
        self, *, tensor: int | None = None, pipeline: int | None = None, where: str | None = None
    ) -> Layout:
        """The layout to serve with; `tensor` and `pipeline` are the user's wishes and are only checked.

        Without wishes: all GPUs, with the fewest pipeline stages that leave enough KV cache. Without RDMA the
        stages, and not the tensor ranks, are on different nodes. Raises InputError with the valid values, at
        `where`.
        """
        if tensor is not None:
            layout = self.engine.layout(tensor, pipeline or 1, self.values)
            if problems := self.problems(layout):
                raise InputError(
                    f"tensor_parallel={layout.tensor} with pipeline_parallel={layout.pipeline} cannot serve "
                    f"{self.checkpoint.id}: {'; '.join(problems)}.",
                    where=where,
                    hint=self._valid_hint(layout.pipeline),
                )
            return layout
        if layouts := self._candidates(pipeline):
            return layouts[0] if self.room is None else self._roomy(layouts, self.room)
        raise self._impossible(pipeline, where)

    def problems(self, layout: Layout) -> list[str]:
        """Why `layout` cannot serve, one clause each; empty when it can."""
        if layout.tensor < 1 or layout.pipeline < 1:
            return ["sizes start at 1"]
        machines = self.machines
        if layout.world % machines.nodes:
            return [f"{layout.world} ranks cannot be spread evenly over {machines.nodes} nodes"]
        if machines.gpus is not None and layout.world > machines.gpus:
            return [f"it needs {layout.world} GPUs and {machines} are {machines.gpus}"]
        return self.engine.layout_problems(
            self.checkpoint, machines, layout, dtype=self.dtype, values=self.values
        )

    def fewer_nodes(self) -> int | None:
        """The fewest nodes on which the model fits with enough KV cache; None where that is more than half,
        or not known."""
        room, machines = self.room, self.machines
        for nodes in range(1, machines.nodes // 2 + 1) if room else ():
            part = replace(self, machines=Machines(nodes, machines.ranks_per_node))
            if room and any(
                room(layout).longest >= enough(self.checkpoint) for layout in part._candidates(None)
            ):
                return nodes
        return None

    def valid_tensor_sizes(self, pipeline: int) -> list[int]:
        """All tensor parallel sizes without a problem, with this many pipeline stages."""
        limit = self.machines.gpus or self.machines.nodes * self.checkpoint.attention_heads
        sizes = range(1, limit + 1)
        return [size for size in sizes if not self.problems(self.engine.layout(size, pipeline, self.values))]

    def _candidates(self, pipeline: int | None) -> list[Layout]:
        """Layouts that use all GPUs, the preferred first."""
        machines = self.machines
        # Not more stages than nodes, or two within one.
        most = min(max(machines.nodes, 2), MOST_STAGES)
        layouts = []
        for stages in [pipeline] if pipeline else range(1, most + 1):
            layout = self.engine.layout(self._world // stages, stages, self.values)
            if layout.world == (machines.gpus or machines.nodes) and not self.problems(layout):
                layouts.append(layout)
        if self.rdma is False and machines.ranks_per_node is not None:
            limit = machines.ranks_per_node
            layouts.sort(key=lambda layout: (layout.tensor > limit, layout.pipeline))
        return layouts

    @property
    def _world(self) -> int:
        """Ranks of one of the copies that the user's arguments ask for."""
        return (self.machines.gpus or self.machines.nodes) // self.engine.layout(1, 1, self.values).data

    def _roomy(self, layouts: list[Layout], cache: Room) -> Layout:
        """The first layout with enough KV cache, else the one with the most."""
        room = {layout: cache(layout).longest for layout in layouts}
        # Within a node the fewest stages win, if the model fits at all.
        least = enough(self.checkpoint) if self.machines.nodes > 1 else 1
        return next(
            (layout for layout in layouts if room[layout] >= least), max(layouts, key=room.__getitem__)
        )

    def _impossible(self, pipeline: int | None, where: str | None) -> InputError:
        """Why no layout uses all GPUs, and what would."""
        stages = pipeline or 1
        why = "; ".join(self.problems(self.engine.layout(self._world // stages, stages, self.values)))
        fewer = self.fewer_nodes() if pipeline is None else None
        return InputError(
            f"{self.checkpoint.id} cannot be spread evenly over all of {self.machines}"
            + (f" with pipeline_parallel={pipeline}" if pipeline else "")
            + (f": {why}." if why else "."),
            where=where,
            hint=replicas_hint(self.machines, fewer) if fewer else self._valid_hint(stages),
        )

    def _valid_hint(self, pipeline: int) -> str:
        sizes = self.valid_tensor_sizes(pipeline)
        if not sizes:
            return (
                f"With pipeline_parallel={pipeline} no tensor_parallel works there: change stages or nodes."
            )
        listed = ", ".join(map(str, sizes))
        return f"On {self.machines}, with pipeline_parallel={pipeline}, tensor_parallel can be {listed}."


def enough(checkpoint: Checkpoint) -> int:
    """Tokens of KV cache with which a copy is large enough: a long request, or the model's longest."""
    return min(ENOUGH_TOKENS, checkpoint.max_context)


def replicas_hint(machines: Machines, nodes: int) -> str:
    """A sentence for people: how many replicas of `nodes` nodes these machines make."""
    copies, rest = divmod(machines.nodes, nodes)
    size = f"{nodes} node{'s' if nodes > 1 else ''}"
    if rest == 0:
        return f"The model fits on {size}: replicas={copies} serves {copies} copies of it."
    return (
        f"The model fits on {size}: {copies * nodes} of these {machines.nodes} nodes, with "
        f"replicas={copies}, serve {copies} copies of it."
    )
