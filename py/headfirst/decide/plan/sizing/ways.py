"""The ways in which the ranks of a replica can share a model, and those that the engine refuses.

Tensor and pipeline sizes, and the engine's further ways: `layouts` of engines/<name>/presets.yml.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headfirst.decide.engines import presets
from headfirst.decide.engines.base import Engine, Values
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.engines.presets import LayoutRule, Preset
from headfirst.decide.model import families
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.sizing.fit import Memory
from headfirst.decide.plan.types import ChosenArgument

# Every stage is a hop more for every token; nobody is served well by more of them unasked.
MOST_STAGES = 8
_CHUNK = 8192  # tokens of a prompt that a group computes at a time


@dataclass(frozen=True)
class LayoutCandidate:
    """A layout, the engine's arguments that it needs, and the values of these and of the user's arguments."""

    layout: Layout
    values: Values
    rule: LayoutRule | None = None
    arguments: tuple[ChosenArgument, ...] = ()
    memory: Memory | None = None  # of a rank; None: not known

    @property
    def longest(self) -> int:
        """Tokens of the longest request; 0 where the weights alone are too large, or nothing is known."""
        return self.memory.room.longest if self.memory else 0

    @property
    def context(self) -> int:
        """Tokens of a request that the arguments allow, or the model."""
        return self.memory.context if self.memory else 0

    @property
    def tokens(self) -> int:
        """Tokens of all KV caches that keep requests of their own."""
        return self.memory.room.tokens * self.layout.groups if self.memory else 0

    @property
    def certainty(self) -> int:
        return self.memory.certainty if self.memory else 0

    @property
    def shares_kv(self) -> bool:
        """As its rule does."""
        return self.rule is not None and self.rule.shares_kv

    def __str__(self) -> str:
        sizes = f"TP {self.layout.tensor} × PP {self.layout.pipeline}"
        sizes += f" × DP {self.layout.data}" if self.layout.data > 1 else ""
        if self.rule is None or self.rule.copies_weights:
            return sizes
        groups = self.layout.attention_data
        return f"{sizes} with {self.rule.title}" + (f" in {groups} groups" if groups > 1 else "")


@dataclass(frozen=True)
class Ways:
    """A checkpoint, served as `dtype`, on machines.

    `values` are those of the engine's check_arguments. `rdma` False: the nodes are connected by TCP alone;
    None is not known.
    """

    checkpoint: Checkpoint
    machines: Machines
    engine: Engine
    values: Values
    dtype: str
    rdma: bool | None = None
    preset: Preset | None = None

    @property
    def ranks(self) -> int:
        """All ranks of one of the groups that the user's arguments make."""
        return (self.machines.gpus or self.machines.nodes) // self._data(self.values)

    def _data(self, values: Values) -> int:
        """Data-parallel groups of these arguments."""
        return self.engine.layout(1, 1, values).data

    def problems(self, layout: Layout, values: Values | None = None) -> list[str]:
        """Why `layout` cannot serve, one clause each; empty when it can."""
        if layout.tensor < 1 or layout.pipeline < 1:
            return ["sizes start at 1"]
        machines = self.machines
        if layout.world % machines.nodes:
            return [f"{layout.world} ranks cannot be spread evenly over {machines.nodes} nodes"]
        if machines.gpus is not None and layout.world > machines.gpus:
            return [f"it needs {layout.world} GPUs and {machines} are {machines.gpus}"]
        values = self.values if values is None else values
        return self.engine.layout_problems(self.checkpoint, machines, layout, dtype=self.dtype, values=values)

    def valid_tensor_sizes(self, pipeline: int) -> list[int]:
        """All tensor parallel sizes without a problem, with this many pipeline stages."""
        limit = self.machines.gpus or self.machines.nodes * self.checkpoint.attention_heads
        return [size for size in range(1, limit + 1) if any(self._of_size(size, pipeline))]

    def _of_size(self, tensor: int, stages: int) -> Iterator[LayoutCandidate]:
        """What works with these sizes, the preferred first."""
        for rule in self._ways():
            for candidate in self._shared_by(tensor * stages, rule, stages):
                if candidate.layout.tensor == tensor:
                    yield candidate

    def _candidates(self, pipeline: int | None) -> Iterator[LayoutCandidate]:
        """What uses all GPUs, the preferred first."""
        machines = self.machines
        # Not more stages than nodes, or two within one.
        most = min(max(machines.nodes, 2), MOST_STAGES)
        all_stages = [pipeline] if pipeline else list(range(1, most + 1))
        ranks = self.ranks
        tried = [(rule, stages) for stages in all_stages for rule in self._ways()]
        if self.rdma is False and machines.ranks_per_node is not None:
            limit = machines.ranks_per_node
            tried.sort(key=lambda way: (ranks // way[1] > limit, way[1]))
        for rule, stages in tried:
            for candidate in self._shared_by(ranks, rule, stages):
                if candidate.layout.world == (machines.gpus or machines.nodes):
                    yield candidate

    def _ways(self) -> list[LayoutRule | None]:
        """The engine's ways, None for tensor and pipeline sizes alone: those that the preset prefers before
        it, and those that work where it does not after it."""
        rules = [rule for rule in presets.of(self.engine.name).layouts if self._is_meant(rule)]
        preferred = [rule for rule in rules if rule.always or self.preset in rule.presets]
        fallback = [rule for rule in rules if rule.fallback and rule not in preferred]
        return [*preferred, None, *sorted(fallback, key=lambda rule: rule.shares_kv)]

    def _is_meant(self, rule: LayoutRule) -> bool:
        """Whether the rule is for this model and these machines, and the user sets none of its flags."""
        return self._suits(rule) and not self._given(rule)

    def _suits(self, rule: LayoutRule) -> bool:
        """Whether the rule is for this model and these machines."""
        unmet = {"moe" if self.checkpoint.moe is None else "dense"}
        unmet |= {"one_node"} if self.machines.nodes > 1 else set()
        family = families.find(self.checkpoint)
        if rule.families and (family is None or family.name not in rule.families):
            return False
        return unmet.isdisjoint(rule.needs)

    def _given(self, rule: LayoutRule) -> list[str]:
        """The flags of the rule that the user's arguments set."""
        words = {flag: presets.words({flag: "1" if value else ""}) for flag, value in rule.arguments.items()}
        return [flag for flag in words if self.engine.sets(words[flag], self.values)]

    def _set_by_user(self) -> list[str]:
        """A sentence for each way that the preset prefers and the user's arguments decide."""
        rules = (rule for rule in presets.of(self.engine.name).layouts if self.preset in rule.presets)
        pairs = ((rule, self._given(rule)) for rule in rules if self._suits(rule))
        return [
            not_chosen(rule.title, f"engine_args sets {', '.join(flags)}") for rule, flags in pairs if flags
        ]

    def _groupless(self) -> list[str]:
        """A sentence for each way of the preset whose groups bring nothing here, or are refused."""
        ranks, lines = self.ranks, []
        for rule in presets.of(self.engine.name).layouts:
            if self.preset not in rule.presets or "copied_kv" not in rule.needs or not self._is_meant(rule):
                continue
            separate = self.engine.layout(ranks, 1, self.values).attention_data > 1  # the user's arguments
            if ranks == 1 or separate or any(self._shared_by(ranks, rule, 1)):
                continue
            most = self._groups(ranks)
            why = f"{ranks} ranks divide {self.checkpoint.kv_heads} KV heads, so that none keeps a copy"
            if most > 1:
                why = "; ".join(self._shared(rule, ranks, most, 1)[1])
            lines.append(not_chosen(rule.title, why))
        return lines

    def _shared_by(self, ranks: int, rule: LayoutRule | None, stages: int) -> Iterator[LayoutCandidate]:
        """The ways in which `ranks` share the model by the rule; none that is refused, or brings nothing."""
        if rule is None:
            layout = self.engine.layout(ranks // stages, stages, self.values)
            if not self.problems(layout):
                yield LayoutCandidate(layout, self.values)
            return
        most = self._groups(ranks)
        if stages > 1 or ranks == 1 or ("copied_kv" in rule.needs and most == 1):
            return
        for groups, copies in self._divisions(rule, ranks, most):
            candidate, problems = self._shared(rule, ranks, groups, copies)
            if ranks % copies == 0 and not problems:
                yield candidate

    def _shared(
        self, rule: LayoutRule, ranks: int, groups: int, copies: int
    ) -> tuple[LayoutCandidate, Sequence[str]]:
        """The layout by the rule with these sizes, and why it cannot serve: a clause each."""
        sizes = {"{tensor}": ranks, "{groups}": groups, "{chunk}": _CHUNK * groups, "{copies}": copies}
        filled = presets.filled(rule.arguments, sizes)
        checked = self.engine.check_arguments(presets.words(filled))
        values = {**checked.values, **self.values}
        layout = self.engine.layout(ranks * self._data(self.values) // self._data(values), 1, values)
        arguments = ChosenArgument.each(filled, rule.reason, rule.source)
        problems = [problem.what for problem in checked.problems] or self.problems(layout, values)
        return LayoutCandidate(layout, values, rule, tuple(arguments)), problems

    def _divisions(self, rule: LayoutRule, ranks: int, most: int) -> Iterator[tuple[int, int]]:
        """Groups and copies that are tried, the preferred first: a group for each rank, then larger ones."""
        several = range(2, ranks + 1)  # where nobody prefers groups, a request has most of the GPUs
        several = several[::-1] if self.preset in rule.presets else several
        if rule.copies_weights:
            yield from ((most, copies) for copies in several)
        elif "copied_kv" in rule.needs:
            yield from ((groups, 1) for groups in several if ranks % groups == 0)
        else:
            yield most, 1

    def _groups(self, ranks: int) -> int:
        """Groups into which the ranks divide so that none keeps a copy of another's keys and values."""
        shares = 1 if self.checkpoint.mla else self.checkpoint.kv_heads
        return ranks // shares if ranks % shares == 0 else 1


def not_chosen(layout: object, why: str) -> str:
    """A sentence on a layout, a title or a candidate; `why` is a clause."""
    text = str(layout)
    return f"{text[0].upper()}{text[1:]} is not chosen: {why}."
