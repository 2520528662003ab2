"""Which layouts LMDeploy accepts: what it asserts when it loads a model, reported before.

Source: 0.18.0, pytorch/config.py (DistConfig, ModelConfig), pytorch/nn/moe/base.py,
serve/openai/launch_server.py, turbomind/parallel_config.py, turbomind/builders/attention.py and moe.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headfirst.decide.engines.layout import Layout, Machines, head_problems
from headfirst.decide.engines.lmdeploy.backend import PYTORCH, TURBOMIND, choose
from headfirst.decide.model.checkpoint import Checkpoint


def layout(tensor: int, pipeline: int, values: Mapping[str, Any]) -> Layout:
    """--dp divides the ranks into groups for attention; --ep spreads whole experts over the ranks."""
    return Layout(tensor, pipeline, attention_data=values.get("dp", 1), expert=values.get("ep", 1))


def attention_tensor(wanted: Layout, values: Mapping[str, Any]) -> int:
    """The ranks that share the heads of one request; --cp shares its tokens among the others."""
    return max(1, wanted.tensor // wanted.attention_data // int(values.get("cp", 1)))


def problems(
    version: str,
    checkpoint: Checkpoint,
    machines: Machines,
    wanted: Layout,
    *,
    dtype: str,
    values: Mapping[str, Any],
) -> list[str]:
    """Why the layout is refused, one clause each."""
    backend = choose(version, checkpoint, values, nodes=machines.nodes)
    if wanted.pipeline > 1:
        return ["LMDeploy has no pipeline parallelism"]
    found = _turbomind(wanted, values) if backend == TURBOMIND else _pytorch(machines, wanted, values)
    return found or _against_model(checkpoint, wanted, backend, values)


def _turbomind(wanted: Layout, values: Mapping[str, Any]) -> list[str]:
    found = []
    if wanted.attention_data > 1:
        found.append("with TurboMind --dp makes copies of the model: take --backend pytorch, or replicas")
    if wanted.tensor % values.get("cp", 1):
        found.append(f"--cp {values['cp']} does not divide tensor_parallel={wanted.tensor}")
    if wanted.expert not in (1, wanted.tensor):
        found.append(f"--ep must be tensor_parallel, {wanted.tensor}")
    return found


def _pytorch(machines: Machines, wanted: Layout, values: Mapping[str, Any]) -> list[str]:
    found = []
    if values.get("cp", 1) > 1:
        found.append("--cp is TurboMind's: write --backend turbomind")
    if wanted.expert not in (1, wanted.tensor):
        found.append(f"--ep must be tensor_parallel, {wanted.tensor}")
    if wanted.tensor % wanted.attention_data:
        found.append(f"--dp {wanted.attention_data} does not divide tensor_parallel={wanted.tensor}")
    elif wanted.attention_data % machines.nodes and wanted.attention_data > 1:
        found.append(f"--dp {wanted.attention_data} cannot be spread evenly over {machines.nodes} nodes")
    executor = values.get("distributed_executor_backend", "ray")
    if wanted.world > 1 and executor != "ray" and (machines.nodes > 1 or wanted.attention_data > 1):
        found.append(f"--distributed-executor-backend {executor} serves one node without --dp")
    return found


def _against_model(
    checkpoint: Checkpoint, wanted: Layout, backend: str, values: Mapping[str, Any]
) -> list[str]:
    found = head_problems(checkpoint, attention_tensor(wanted, values))
    if checkpoint.moe and wanted.expert > 1 and checkpoint.moe.experts % wanted.expert:
        found.append(f"{checkpoint.moe.experts} experts are not divisible by {wanted.expert}")
    # TurboMind pads these widths (builders/ffn.py).
    if checkpoint.moe and wanted.expert == 1 and backend == PYTORCH:
        width = checkpoint.moe.intermediate_size
        if width % wanted.tensor:
            found.append(f"the expert intermediate size of {width} is not divisible by {wanted.tensor}")
    return found
