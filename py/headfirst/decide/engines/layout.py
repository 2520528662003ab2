"""How the ranks of one replica share a model: sizes that a plan chooses and an engine accepts or refuses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Parallel sizes of one replica.

    `tensor` ranks share each layer, `pipeline` stages share the layers, `data` groups of these each serve
    requests of their own. `attention_data`: groups into which the tensor ranks divide for attention, each
    with a KV cache of its own. `expert`: ranks of a stage among which whole experts are spread; 1 divides
    each expert among all.
    """

    tensor: int
    pipeline: int = 1
    data: int = 1
    attention_data: int = 1
    expert: int = 1

    @property
    def world(self) -> int:
        """GPUs (or CPU ranks) in use."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True)
class Machines:
    """The hosts of one replica. `ranks_per_node` is the GPUs of each; None sets no limit (CPU ranks)."""

    nodes: int
    ranks_per_node: int | None

    @property
    def gpus(self) -> int | None:
        """GPUs of all nodes together."""
        return None if self.ranks_per_node is None else self.nodes * self.ranks_per_node

    def __str__(self) -> str:
        nodes = f"{self.nodes} node{'s' if self.nodes != 1 else ''}"
        return nodes if self.ranks_per_node is None else f"{nodes} × {self.ranks_per_node} GPUs"
