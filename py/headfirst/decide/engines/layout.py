"""How the ranks of one replica share a model: sizes that a plan chooses and an engine accepts or refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headfirst.common.errors import InputError
from headfirst.decide.model.checkpoint import Checkpoint

# Input channels with one scale in 4-bit checkpoints; the published ones have groups of 128.
_GROUP = 128
_GROUPED = frozenset({"awq", "gptq"})
_BLOCKS = {"fp8": "FP8", "blockwise_int8": "INT8"}


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

    @property
    def groups(self) -> int:
        """Groups of ranks with requests and a KV cache of their own."""
        return self.attention_data * self.data


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


def given_stages(variable: str, environment: Mapping[str, str], stages: int, layers: int) -> list[int] | None:
    """The layers of each stage where the user has set the engine's variable, as `31,30`; None: not set.

    InputError for what the engine ends with at start.
    """
    text = environment.get(variable)
    if text is None:
        return None
    try:
        counts = [int(count) for count in text.split(",")]
    except ValueError:
        counts = []
    if len(counts) != stages or sum(counts) != layers or min(counts) < 0:
        raise InputError(
            f"{variable}={text} does not divide {layers} layers into {stages} stages",
            hint=f"Write {stages} numbers, with commas, whose sum is {layers}, or leave it out.",
        )
    return counts


def stage_layers(counts: Sequence[int], stage: int) -> range:
    """The layers of a stage, given the number of each."""
    first = sum(counts[:stage])
    return range(first, first + counts[stage])


def width_problems(
    name: str, width: int, ranks: int, checkpoint: Checkpoint, dtype: str, *, experts: bool = False
) -> list[str]:
    """Why `ranks` cannot share a `width` of linear layers: a part has whole blocks or groups of `dtype`.

    Of `experts` the engines have kernels that also read other parts of some types.
    """
    if width % ranks:
        return [f"the {name} of {width} is not divisible by {ranks}"]
    unit, what = _unit(checkpoint, dtype, experts=experts)
    part = width // ranks
    if ranks == 1 or part % unit == 0:
        return []
    return [f"the {name} of {width} in {ranks} parts gives {part}, not divisible by the {what} of {unit}"]


def _unit(checkpoint: Checkpoint, dtype: str, *, experts: bool) -> tuple[int, str]:
    """The input channels that stay together, and what they are."""
    quantization = checkpoint.quantization
    if dtype in _BLOCKS:
        return max(checkpoint.weight_block_size or (1,)), f"{_BLOCKS[dtype]} block"
    if dtype in _GROUPED:
        return _GROUP, f"{dtype.upper()} group"
    if quantization and dtype in ("compressed-tensors", "modelopt") and not experts:
        return quantization.group_size or 1, f"{quantization.title} group"
    return 1, ""


def tower_problems(checkpoint: Checkpoint, ranks: int) -> list[str]:
    """Why `ranks` cannot share the part that reads images, where the engine divides it."""
    heads = checkpoint.vision_heads
    if heads is None or heads % ranks == 0:
        return []
    return [f"{heads} attention heads of the part that reads images are not divisible by {ranks}"]


def head_problems(checkpoint: Checkpoint, ranks: int) -> list[str]:
    """Why `ranks` cannot share the attention of one request, a clause each; MLA has no KV heads to divide."""
    kv_heads = checkpoint.kv_heads
    reasons = [
        f"{heads} attention heads are not divisible by {ranks}"
        for heads in (checkpoint.attention_heads, *checkpoint.other_heads)
        if heads % ranks
    ]
    if checkpoint.mla is None and kv_heads % ranks and ranks % kv_heads:
        reasons.append(
            f"{kv_heads} KV heads can neither be divided by {ranks} nor copied evenly to its ranks"
        )
    return reasons
