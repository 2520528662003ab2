"""Which layouts LMDeploy accepts: what it asserts when it loads a model, reported before.

Source: 0.18.0, pytorch/config.py (DistConfig, ModelConfig), pytorch/nn/moe/base.py,
serve/openai/launch_server.py, turbomind/parallel_config.py, turbomind/builders/attention.py and moe.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from headfirst.decide.engines.base import Values
from headfirst.decide.engines.layout import Layout, Machines, head_problems
from headfirst.decide.engines.lmdeploy.backend import PYTORCH, TURBOMIND, choose
from headfirst.decide.engines.lmdeploy.support import SupportTable
from headfirst.decide.model.checkpoint import Checkpoint


def layout(tensor: int, pipeline: int, values: Values) -> Layout:
    """--dp divides the ranks into groups for attention; --ep spreads whole experts over the ranks."""
    return Layout(tensor, pipeline, attention_data=values.get("dp", 1), expert=values.get("ep", 1))


def attention_tensor(layout: Layout, values: Values) -> int:
    """The ranks that share the heads of one request; --cp shares its tokens among the others."""
    return max(1, layout.tensor // layout.attention_data // int(values.get("cp", 1)))


def problems(
    has: SupportTable,
    checkpoint: Checkpoint,
    machines: Machines,
    layout: Layout,
    *,
    dtype: str,
    values: Values,
) -> list[str]:
    """Why the layout is refused, one clause each."""
    backend = choose(has, checkpoint, values, nodes=machines.nodes)
    if layout.pipeline > 1:
        return ["LMDeploy has no pipeline parallelism"]
    against = _turbomind(layout, values) if backend == TURBOMIND else _pytorch(machines, layout, values)
    return [*against] or [*_against_model(checkpoint, layout, backend, values)]


def _turbomind(layout: Layout, values: Values) -> Iterator[str]:
    if layout.attention_data > 1:
        yield "with TurboMind --dp makes copies of the model: take --backend pytorch, or replicas"
    if layout.tensor % values.get("cp", 1):
        yield f"--cp {values['cp']} does not divide tensor_parallel={layout.tensor}"
    if layout.expert not in (1, layout.tensor):
        yield f"--ep must be tensor_parallel, {layout.tensor}"


def _pytorch(machines: Machines, layout: Layout, values: Values) -> Iterator[str]:
    if values.get("cp", 1) > 1:
        yield "--cp is TurboMind's: write --backend turbomind"
    if layout.expert not in (1, layout.tensor):
        yield f"--ep must be tensor_parallel, {layout.tensor}"
    if layout.tensor % layout.attention_data:
        yield f"--dp {layout.attention_data} does not divide tensor_parallel={layout.tensor}"
    elif layout.attention_data % machines.nodes and layout.attention_data > 1:
        yield f"--dp {layout.attention_data} cannot be spread evenly over {machines.nodes} nodes"
    executor = values.get("distributed_executor_backend", "ray")
    if layout.world > 1 and executor != "ray" and (machines.nodes > 1 or layout.attention_data > 1):
        yield f"--distributed-executor-backend {executor} serves one node without --dp"


def _against_model(checkpoint: Checkpoint, layout: Layout, backend: str, values: Values) -> Iterator[str]:
    yield from head_problems(checkpoint, attention_tensor(layout, values))
    moe = checkpoint.moe
    if moe and layout.expert > 1 and moe.experts % layout.expert:
        yield f"{moe.experts} experts are not divisible by {layout.expert}"
    # TurboMind pads these widths (builders/ffn.py).
    if moe and layout.expert == 1 and backend == PYTORCH and moe.intermediate_size % layout.tensor:
        width = moe.intermediate_size
        yield f"the expert intermediate size of {width} is not divisible by {layout.tensor}"
