"""The layout of a replica: how its ranks share the model, searched for or checked by the engine's rules.

Tensor and pipeline sizes, and the engine's further ways (`layouts` of engines/<name>/presets.yml: expert and
data parallelism) are one search: the first, in the order of preference, that has enough KV cache. Replicas
are the inventory's; sizing/sizes.py states how many the GPUs would hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headfirst.common.errors import InputError
from headfirst.decide.engines import presets
from headfirst.decide.engines.base import CacheRoom, Engine
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.engines.presets import LayoutRule, Preset
from headfirst.decide.model import families
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.types import ChosenArgument

# Every stage is a hop more for every token; nobody is served well by more of them unasked.
MOST_STAGES = 8
# A KV cache of less than this many tokens, or than the model's context, needs another layout.
ENOUGH_TOKENS = 32_768
_CHUNK = 8192  # tokens of a prompt that a group computes at a time
_MOST_REJECTED = 4
# Copies of the weights take memory from the KV cache: they are worth it while this share of it is left.
COPIES_SHARE = 0.5

# What the KV cache of a rank holds with a layout and these values of arguments; no tokens where the weights
# alone are too large.
Room = Callable[[Layout, Mapping[str, Any]], CacheRoom]


@dataclass(frozen=True)
class Candidate:
    """A layout, the engine's arguments that it needs, and the values of these and of the user's arguments."""

    layout: Layout
    values: Mapping[str, Any]
    rule: LayoutRule | None = None
    arguments: tuple[ChosenArgument, ...] = ()

    def __str__(self) -> str:
        sizes = f"TP {self.layout.tensor} × PP {self.layout.pipeline}"
        sizes += f" × DP {self.layout.data}" if self.layout.data > 1 else ""
        if self.rule is None or self.rule.copies_weights:
            return sizes
        groups = self.layout.attention_data
        return f"{sizes} with {self.rule.title}" + (f" in {groups} groups" if groups > 1 else "")


@dataclass(frozen=True)
class LayoutChoice:
    """The layout to serve with, a sentence with the reason, and one for each that was tried before it."""

    candidate: Candidate
    reason: str
    rejected: tuple[str, ...] = ()


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
    preset: Preset | None = None

    def choose(
        self, *, tensor: int | None = None, pipeline: int | None = None, where: str | None = None
    ) -> LayoutChoice:
        """The layout to serve with; `tensor` and `pipeline` are the user's wishes and are kept.

        Without wishes: all GPUs, with the fewest pipeline stages that leave enough KV cache. Without RDMA the
        stages, and not the tensor ranks, are on different nodes. Raises InputError with the valid values, at
        `where`.
        """
        if tensor is not None:
            wished = self._wished(tensor, pipeline or 1, where)
            return replace(wished, rejected=(*self._set_by_user(), *wished.rejected))
        candidates = list(self._candidates(pipeline))
        if not candidates:
            raise self._impossible(pipeline, where)
        rejected = [*self._set_by_user(), *self._groupless()]
        for candidate in candidates:
            why = self._short(candidate, candidates)
            if not why:
                return LayoutChoice(
                    candidate, self._reason(candidate, pipeline), tuple(rejected[:_MOST_REJECTED])
                )
            rejected.append(f"{candidate} is not chosen: {why}.")
        plain = [candidate for candidate in candidates if not candidate.rule] or candidates
        largest = max(plain, key=self._longest)
        if len(candidates) == 1:
            return LayoutChoice(largest, self._reason(largest, pipeline))
        reason = f"{largest} leaves the most room for the KV cache; no layout has enough for a long request."
        return LayoutChoice(largest, reason)

    def problems(self, layout: Layout, values: Mapping[str, Any] | None = None) -> list[str]:
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

    def fewer_nodes(self) -> int | None:
        """The fewest nodes on which the model fits with enough KV cache; None where that is more than half,
        or not known."""
        for nodes in range(1, self.machines.nodes // 2 + 1) if self.room else ():
            part = replace(self, machines=Machines(nodes, self.machines.ranks_per_node))
            least = enough(self.checkpoint)
            if any(part._longest(candidate) >= least for candidate in part._candidates(None)):
                return nodes
        return None

    def valid_tensor_sizes(self, pipeline: int) -> list[int]:
        """All tensor parallel sizes without a problem, with this many pipeline stages."""
        limit = self.machines.gpus or self.machines.nodes * self.checkpoint.attention_heads
        return [size for size in range(1, limit + 1) if any(self._of_size(size, pipeline))]

    def _wished(self, tensor: int, stages: int, where: str | None) -> LayoutChoice:
        for candidate in self._of_size(tensor, stages):
            sizes = f"tensor_parallel={tensor}" + (f" and pipeline_parallel={stages}" if stages > 1 else "")
            reasons = [f"The inventory sets {sizes}.", *([candidate.rule.reason] if candidate.rule else [])]
            gpus = self.machines.gpus
            if gpus is not None and candidate.layout.world < gpus:
                reasons.append(f"{gpus - candidate.layout.world} of {gpus} GPUs serve nothing.")
            return LayoutChoice(candidate, " ".join(reasons))
        problems = self.problems(self.engine.layout(tensor, stages, self.values))
        raise InputError(
            f"tensor_parallel={tensor} with pipeline_parallel={stages} cannot serve "
            f"{self.checkpoint.id}: {'; '.join(problems)}.",
            where=where,
            hint=self._valid_hint(stages),
        )

    def _of_size(self, tensor: int, stages: int) -> Iterator[Candidate]:
        """What works with these sizes, the preferred first."""
        for rule in self._ways():
            for candidate in self._shared_by(tensor * stages, rule, stages):
                if candidate.layout.tensor == tensor:
                    yield candidate

    def _candidates(self, pipeline: int | None) -> Iterator[Candidate]:
        """What uses all GPUs, the preferred first."""
        machines = self.machines
        # Not more stages than nodes, or two within one.
        most = min(max(machines.nodes, 2), MOST_STAGES)
        all_stages = [pipeline] if pipeline else list(range(1, most + 1))
        ranks = (machines.gpus or machines.nodes) // self.engine.layout(1, 1, self.values).data
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
        rules = [rule for rule in presets.layouts(self.engine.name) if self._is_meant(rule)]
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
        given = []
        for flag, value in rule.arguments.items():
            words = presets.words({flag: "1" if value else ""})
            given += [flag] if self.engine.check_arguments(words).values.keys() & self.values.keys() else []
        return given

    def _set_by_user(self) -> list[str]:
        """A sentence for each way that the preset prefers and the user's arguments decide."""
        rules = (rule for rule in presets.layouts(self.engine.name) if self.preset in rule.presets)
        given = ((rule, self._given(rule)) for rule in rules if self._suits(rule))
        return [
            f"{rule.title[0].upper()}{rule.title[1:]} is not chosen: engine_args sets {', '.join(flags)}."
            for rule, flags in given
            if flags
        ]

    def _groupless(self) -> list[str]:
        """A sentence for each way of the preset whose groups bring nothing here, or are refused."""
        ranks = (self.machines.gpus or self.machines.nodes) // self.engine.layout(1, 1, self.values).data
        lines = []
        for rule in presets.layouts(self.engine.name):
            if self.preset not in rule.presets or "copied_kv" not in rule.needs or not self._is_meant(rule):
                continue
            separate = self.engine.layout(ranks, 1, self.values).attention_data > 1  # the user's arguments
            if ranks == 1 or separate or any(self._shared_by(ranks, rule, 1)):
                continue
            most = self._groups(ranks)
            why = f"{ranks} ranks divide {self.checkpoint.kv_heads} KV heads, so that none keeps a copy"
            if most > 1:
                why = "; ".join(self._shared(rule, ranks, most, 1)[1])
            lines.append(f"{rule.title[0].upper()}{rule.title[1:]} is not chosen: {why}.")
        return lines

    def _shared_by(self, ranks: int, rule: LayoutRule | None, stages: int) -> Iterator[Candidate]:
        """The ways in which `ranks` share the model by the rule; none that is refused, or brings nothing."""
        if rule is None:
            layout = self.engine.layout(ranks // stages, stages, self.values)
            if not self.problems(layout):
                yield Candidate(layout, self.values)
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
    ) -> tuple[Candidate, Sequence[str]]:
        """The layout by the rule with these sizes, and why it cannot serve: a clause each."""
        filled = _filled(rule, ranks, groups, copies)
        checked = self.engine.check_arguments(presets.words(filled))
        values = {**checked.values, **self.values}
        data = self.engine.layout(1, 1, values).data // self.engine.layout(1, 1, self.values).data
        layout = self.engine.layout(ranks // data, 1, values)
        arguments = (
            ChosenArgument(flag=flag, value=value, reason=rule.reason, source=rule.source)
            for flag, value in filled.items()
        )
        problems = [problem.what for problem in checked.problems] or self.problems(layout, values)
        return Candidate(layout, values, rule, tuple(arguments)), problems

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

    def _longest(self, candidate: Candidate) -> int:
        return self.room(candidate.layout, candidate.values).longest if self.room else 0

    def _certainty(self, candidate: Candidate) -> int:
        return self.room(candidate.layout, candidate.values).certainty if self.room else 0

    def _short(self, candidate: Candidate, candidates: list[Candidate]) -> str:
        """Why the candidate is not taken although it works: a clause, "" where it is."""
        if self.room is None:
            return ""
        longest = self._longest(candidate)
        # Within a node the fewest stages win, if the model fits at all.
        least = enough(self.checkpoint) if self.machines.nodes > 1 or candidate.rule else 1
        if longest < least:
            return (
                f"its KV cache holds a request of {longest:,} tokens, fewer than {least:,}"
                if longest
                else "the weights leave no memory for a KV cache"
            )
        # More stages are no remedy for a context that the user can shorten, and one that copies shorten.
        shares_kv = candidate.rule is not None and candidate.rule.shares_kv
        rivals = (
            other for other in candidates if shares_kv or other.layout.pipeline <= candidate.layout.pipeline
        )
        certainty = self._certainty(candidate)
        if any(self._certainty(rival) > certainty for rival in rivals):
            ends = "may end" if certainty else "ends"
            return f"{self.engine.title} {ends} at start where a request can be at most {longest:,} tokens"
        if not candidate.rule or not candidate.rule.shares_kv:
            return ""
        others = (other for other in candidates if not other.rule or not other.rule.shares_kv)
        plain = min(others, key=lambda other: other.layout.pipeline, default=None)
        if plain is None or plain.layout.pipeline > candidate.layout.pipeline:
            return ""
        share = COPIES_SHARE if candidate.rule.copies_weights else 1
        ours, theirs = self._tokens(candidate), self._tokens(plain)
        if ours >= theirs * share:
            return ""
        fewer = "fewer than" if share == 1 else f"less than {share:.0%} of"
        return f"all its KV caches hold {ours:,} tokens, {fewer} the {theirs:,} of {plain}"

    def _tokens(self, candidate: Candidate) -> int:
        """Tokens of all KV caches that keep requests of their own."""
        if self.room is None:
            return 0
        layout = candidate.layout
        return self.room(layout, candidate.values).tokens * layout.attention_data * layout.data

    def _reason(self, candidate: Candidate, pipeline: int | None) -> str:
        """Why this layout, as a sentence."""
        if candidate.rule:
            together = candidate.layout.world // self.engine.layout(1, 1, self.values).data
            plain = self.problems(self.engine.layout(together, 1, self.values))
            refused = f" Without it: {'; '.join(plain)}." if plain and candidate.rule.fallback else ""
            return candidate.rule.reason + refused
        stages = candidate.layout.pipeline
        if pipeline:
            return f"The inventory sets pipeline_parallel={pipeline}."
        several = self.machines.nodes > 1
        if self.machines.gpus == 1:
            return "There is one GPU."
        if stages == candidate.layout.tensor == 1:
            return "Each rank has the whole model, as engine_args sets."
        if stages == 1:
            ranks = "All ranks" if several else "All ranks of the node"
            link = {True: ", which RDMA connects", False: "", None: ""}[self.rdma] if several else ""
            return f"{ranks} share each layer{link}: no pipeline stage adds a hop to a token."
        together = candidate.layout.tensor * stages
        if why := self.problems(self.engine.layout(together, 1, self.values)):
            return f"TP {together} is refused: {'; '.join(why)}."
        if self.rdma is False:
            return (
                "No RDMA connects the nodes: stages send less over the network than ranks that share a layer."
            )
        return "With fewer stages the KV cache would hold no long request."

    def _impossible(self, pipeline: int | None, where: str | None) -> InputError:
        """Why no layout uses all GPUs, and what would."""
        stages = pipeline or 1
        ranks = (self.machines.gpus or self.machines.nodes) // self.engine.layout(1, 1, self.values).data
        why = "; ".join(self.problems(self.engine.layout(ranks // stages, stages, self.values)))
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


def _filled(rule: LayoutRule, ranks: int, groups: int, copies: int) -> dict[str, str]:
    sizes = {"{tensor}": ranks, "{groups}": groups, "{chunk}": _CHUNK * groups, "{copies}": copies}
    filled = {}
    for flag, value in rule.arguments.items():
        for name, size in sizes.items():
            value = value.replace(name, str(size))
        filled[flag] = value
    return filled


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
