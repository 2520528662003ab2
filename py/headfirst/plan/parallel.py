"""How many GPUs share the model, and how: tensor and pipeline parallel sizes, chosen or checked.

The rules are those that SGLang 0.5.23 asserts when it loads a model (validation_hook.py,
models/llama.py, models/qwen2.py, quantization/fp8.py), told before anything is started.
"""

from __future__ import annotations

from dataclasses import dataclass

from headfirst.errors import InputError
from headfirst.model.checkpoint import Checkpoint


@dataclass(frozen=True)
class Parallel:
    """`tensor` ranks share each layer, `pipeline` stages share the layers."""

    tensor: int
    pipeline: int

    @property
    def world(self) -> int:
        """GPUs (or CPU ranks) in use."""
        return self.tensor * self.pipeline


@dataclass(frozen=True)
class Machines:
    """`ranks_per_node` is the GPUs of each node; None sets no limit (CPU ranks)."""

    nodes: int
    ranks_per_node: int | None


def choose(
    checkpoint: Checkpoint,
    machines: Machines,
    *,
    dtype: str,
    tensor: int | None = None,
    pipeline: int | None = None,
    where: str | None = None,
) -> Parallel:
    """The sizes to serve with; `tensor` and `pipeline` are the user's wishes and are only checked.

    Without wishes: all GPUs, with the fewest pipeline stages. `dtype` is what is served ('fp8' brings the
    block rule). Raises InputError with the valid values, at `where`.
    """
    if tensor is not None:
        wanted = Parallel(tensor, pipeline or 1)
        problems = check(checkpoint, machines, wanted, dtype=dtype)
        if problems:
            raise InputError(
                f"tensor_parallel={wanted.tensor} with pipeline_parallel={wanted.pipeline} cannot serve "
                f"{checkpoint.id}: {'; '.join(problems)}.",
                where=where,
                hint=_valid_hint(checkpoint, machines, wanted.pipeline, dtype),
            )
        return wanted
    world = machines.nodes * (machines.ranks_per_node or 1)
    # A stage more is a hop more for every token: not more stages than nodes, or two within one.
    for stages in [pipeline] if pipeline else range(1, max(machines.nodes, 2) + 1):
        wanted = Parallel(world // stages, stages)
        if wanted.world == world and not check(checkpoint, machines, wanted, dtype=dtype):
            return wanted
    with_stages = f" with pipeline_parallel={pipeline}" if pipeline else ""
    raise InputError(
        f"{checkpoint.id} with its {checkpoint.attention_heads} attention heads cannot be spread evenly over "
        f"all of {_machines(machines)}{with_stages}.",
        where=where,
        hint=_valid_hint(checkpoint, machines, pipeline or 1, dtype),
    )


def check(checkpoint: Checkpoint, machines: Machines, wanted: Parallel, *, dtype: str) -> list[str]:
    """What stands against `wanted`, one clause each; empty when nothing does."""
    if wanted.tensor < 1 or wanted.pipeline < 1:
        return ["sizes start at 1"]
    return _against_machines(machines, wanted) + _against_model(checkpoint, wanted, dtype)


def valid_tensor_sizes(checkpoint: Checkpoint, machines: Machines, *, pipeline: int, dtype: str) -> list[int]:
    """All tensor parallel sizes that pass `check` with this many pipeline stages."""
    limit = machines.nodes * (machines.ranks_per_node or checkpoint.attention_heads)
    return [
        size
        for size in range(1, limit + 1)
        if not check(checkpoint, machines, Parallel(size, pipeline), dtype=dtype)
    ]


def _against_machines(machines: Machines, wanted: Parallel) -> list[str]:
    nodes = machines.nodes
    if wanted.world % nodes:
        return [f"{wanted.world} ranks cannot be spread evenly over {nodes} nodes"]
    if machines.ranks_per_node is not None and wanted.world // nodes > machines.ranks_per_node:
        available = nodes * machines.ranks_per_node
        return [f"it needs {wanted.world} GPUs and {_machines(machines)} are {available}"]
    # A stage is spread over whole nodes, or a node holds whole stages (engine.py, _calculate_rank_ranges).
    if nodes % wanted.pipeline and wanted.pipeline % nodes:
        return [f"{wanted.pipeline} pipeline stages and {nodes} nodes do not divide each other"]
    return []


def _against_model(checkpoint: Checkpoint, wanted: Parallel, dtype: str) -> list[str]:
    tensor = wanted.tensor
    problems = []
    if wanted.pipeline > checkpoint.layers:
        problems.append(f"the model has only {checkpoint.layers} layers")
    if checkpoint.attention_heads % tensor:
        problems.append(f"{checkpoint.attention_heads} attention heads are not divisible by {tensor}")
    heads = checkpoint.kv_heads
    if checkpoint.mla is None and heads % tensor and tensor % heads:
        problems.append(f"{heads} KV heads can neither be divided by {tensor} nor copied evenly to its ranks")
    block = checkpoint.weight_block_size if dtype == "fp8" else None
    for name, width in _widths(checkpoint):
        if width % tensor:
            problems.append(f"the {name} of {width} is not divisible by {tensor}")
        elif block and tensor > 1 and (width // tensor) % max(block):
            problems.append(
                f"the {name} of {width} in {tensor} parts gives {width // tensor}, not divisible by the "
                f"FP8 block of {max(block)}"
            )
    return problems


def _widths(checkpoint: Checkpoint) -> list[tuple[str, int]]:
    """The feed-forward widths that tensor parallelism cuts."""
    moe = checkpoint.moe
    dense = [("intermediate size", checkpoint.intermediate_size)]
    if moe is None:
        return dense
    experts = [("expert intermediate size", moe.intermediate_size)]
    return (dense if moe.first_dense_layers else []) + experts


def _machines(machines: Machines) -> str:
    nodes = f"{machines.nodes} node{'s' if machines.nodes != 1 else ''}"
    return nodes if machines.ranks_per_node is None else f"{nodes} × {machines.ranks_per_node} GPUs"


def _valid_hint(checkpoint: Checkpoint, machines: Machines, pipeline: int, dtype: str) -> str:
    sizes = valid_tensor_sizes(checkpoint, machines, pipeline=pipeline, dtype=dtype)
    if not sizes:
        return f"With pipeline_parallel={pipeline} no tensor_parallel works there: change stages or nodes."
    listed = ", ".join(map(str, sizes))
    return f"On {_machines(machines)}, with pipeline_parallel={pipeline}, tensor_parallel can be {listed}."
