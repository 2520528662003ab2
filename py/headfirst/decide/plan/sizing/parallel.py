"""The layout of a replica: of the ways in which its ranks can share the model (ways.py) the one taken.

It is the first, in the order of preference, that has enough KV cache. Replicas are the inventory's;
sizing/sizes.py states how many the GPUs would hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headfirst.common.errors import InputError
from headfirst.decide.engines.layout import Machines
from headfirst.decide.plan.sizing.fit import MemoryOf
from headfirst.decide.plan.sizing.ways import LayoutCandidate, Ways, not_chosen

# A KV cache of less than this many tokens, or than the model's context, needs another layout.
ENOUGH_TOKENS = 32_768
_MOST_REJECTED = 4
# Copies of the weights take memory from the KV cache: they are worth it while this share of it is left.
COPIES_SHARE = 0.5


@dataclass(frozen=True)
class LayoutChoice:
    """The layout to serve with, a sentence with the reason, and one for each that was tried before it."""

    candidate: LayoutCandidate
    reason: str
    rejected: tuple[str, ...] = ()


@dataclass(frozen=True)
class LayoutChooser(Ways):
    """The ways, of which one is chosen. `memory` None: that of the GPUs is not known."""

    memory: MemoryOf | None = None

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
        candidates = list(self._sized(pipeline))
        if not candidates:
            raise self._impossible(pipeline, where)
        rejected = [*self._set_by_user(), *self._groupless()]
        for candidate in candidates:
            why = self._short(candidate, candidates)
            if not why:
                return LayoutChoice(
                    candidate, self._reason(candidate, pipeline), tuple(rejected[:_MOST_REJECTED])
                )
            rejected.append(not_chosen(candidate, why))
        plain = [candidate for candidate in candidates if not candidate.rule] or candidates
        largest = max(plain, key=lambda candidate: candidate.longest)
        if len(candidates) == 1:
            return LayoutChoice(largest, self._reason(largest, pipeline))
        reason = f"{largest} leaves the most room for the KV cache; no layout has enough for a long request."
        return LayoutChoice(largest, reason)

    def _sized(self, pipeline: int | None) -> Iterator[LayoutCandidate]:
        """The candidates with their memory."""
        for candidate in self._candidates(pipeline):
            memory = self.memory(candidate.layout, candidate.values) if self.memory else None
            yield replace(candidate, memory=memory)

    def fewer_nodes(self) -> int | None:
        """The fewest nodes on which the model fits with enough KV cache; None where that is more than half,
        or not known."""
        for nodes in range(1, self.machines.nodes // 2 + 1) if self.memory else ():
            part = replace(self, machines=Machines(nodes, self.machines.ranks_per_node))
            if any(candidate.longest >= enough(candidate.context) for candidate in part._sized(None)):
                return nodes
        return None

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

    def _short(self, candidate: LayoutCandidate, candidates: list[LayoutCandidate]) -> str:
        """Why the candidate is not taken although it works: a clause, "" where it is."""
        if self.memory is None:
            return ""
        longest, certainty = candidate.longest, candidate.certainty
        # Within a node the fewest stages win, if the model fits at all.
        least = enough(candidate.context) if self.machines.nodes > 1 or candidate.rule else 1
        if longest < least:
            return (
                f"its KV cache holds a request of {longest:,} tokens, fewer than {least:,}"
                if longest
                else "the weights leave no memory for a KV cache"
            )
        # More stages are no remedy for a context that the user can shorten, and one that copies shorten.
        stages = candidate.layout.pipeline
        rivals = (other for other in candidates if candidate.shares_kv or other.layout.pipeline <= stages)
        if any(rival.certainty > certainty for rival in rivals):
            ends = "may end" if certainty else "ends"
            return f"{self.engine.title} {ends} at start where a request can be at most {longest:,} tokens"
        if not candidate.rule or not candidate.shares_kv:
            return ""
        others = (other for other in candidates if not other.shares_kv)
        plain = min(others, key=lambda other: other.layout.pipeline, default=None)
        if plain is None or plain.layout.pipeline > stages:
            return ""
        share = COPIES_SHARE if candidate.rule.copies_weights else 1
        ours, theirs = candidate.tokens, plain.tokens
        if ours >= theirs * share:
            return ""
        fewer = "fewer than" if share == 1 else f"less than {share:.0%} of"
        return f"all its KV caches hold {ours:,} tokens, {fewer} the {theirs:,} of {plain}"

    def _reason(self, candidate: LayoutCandidate, pipeline: int | None) -> str:
        """Why this layout, as a sentence."""
        if candidate.rule:
            plain = self.problems(self.engine.layout(self.ranks, 1, self.values))
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
        why = "; ".join(self.problems(self.engine.layout(self.ranks // stages, stages, self.values)))
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
                f"With pipeline_parallel={pipeline} no tensor_parallel works there: change stages, nodes or "
                "the sizes of engine_args."
            )
        listed = ", ".join(map(str, sizes))
        return f"On {self.machines}, with pipeline_parallel={pipeline}, tensor_parallel can be {listed}."


def enough(context: int) -> int:
    """Tokens of KV cache with which a copy is large enough: a long request, or the longest of `context`."""
    return min(ENOUGH_TOKENS, context)


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
