"""Which layouts vLLM accepts: what it raises when it makes its configuration or loads a model.

Source: config/model.py (verify_with_parallel_config), config/parallel.py (nnodes_within_dp),
models/llama.py and qwen3_moe.py (KV heads), layers/linear.py and fused_moe/layer.py (divide),
layers/quantization/utils/fp8_utils.py (validate_fp8_block_shape), auto_awq.py and marlin_utils.py (groups).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headfirst.decide.engines import lora
from headfirst.decide.engines.layout import Layout, Machines, given_stages, head_problems, stage_layers
from headfirst.decide.engines.vllm import support
from headfirst.decide.model.checkpoint import Checkpoint

# Input channels with one scale in 4-bit checkpoints; the published ones have groups of 128.
_GROUP = 128
_EXPERT_EXCHANGE = "allgather_reducescatter"  # the default of --all2all-backend
_GROUPED = frozenset({"awq", "gptq"})


def layout(tensor: int, pipeline: int, values: Mapping[str, Any]) -> Layout:
    """The layout that results from these sizes and the arguments' values.

    With --enable-expert-parallel whole experts are spread over all ranks of a stage, in every data group.
    """
    data = values.get("data_parallel_size", 1)
    return Layout(
        tensor, pipeline, data=data, expert=tensor * data if values.get("enable_expert_parallel") else 1
    )


def expert_ranks(layout: Layout) -> int:
    """Ranks among which experts, or each of them, are divided: data groups share them."""
    return layout.tensor * layout.data


def pipeline_layers(stage: int, stages: int, layers: int, environment: Mapping[str, str]) -> range:
    """Layers of a stage: distributed/utils.py, get_pp_indices.

    What cannot be divided goes to the stages before the last, from there towards the first.
    """
    counts = given_stages("VLLM_PP_LAYER_PARTITION", environment, stages, layers)
    if counts is None:
        least, more = divmod(layers, stages)
        counts = [least + (stages - 1 - more <= at < stages - 1) for at in range(stages)]
    return stage_layers(counts, stage)


def problems(
    version: str,
    checkpoint: Checkpoint,
    machines: Machines,
    layout: Layout,
    *,
    dtype: str,
    values: Mapping[str, Any],
) -> list[str]:
    """Why the layout is refused, one clause each."""
    return [
        *_against_machines(machines, layout, values),
        *_stages(version, checkpoint, layout),
        *_attention(checkpoint, layout, dtype),
        *_feed_forward(checkpoint, layout, dtype),
        *_adapters(checkpoint, layout, values),
    ]


def _against_machines(machines: Machines, layout: Layout, values: Mapping[str, Any]) -> Iterator[str]:
    if layout.data % machines.nodes and machines.nodes % layout.data:
        yield f"{layout.data} data-parallel groups and {machines.nodes} nodes do not divide each other"
    if values.get("prefill_context_parallel_size", 1) > 1:
        yield "prefill context parallelism multiplies the ranks, which the plan does not count"


def _stages(version: str, checkpoint: Checkpoint, layout: Layout) -> Iterator[str]:
    if layout.pipeline == 1:
        return
    can = support.abilities(version, checkpoint.architecture)
    if can is not None and "pp" not in can:
        yield f"vLLM {version} has no pipeline parallelism for {checkpoint.architecture}"
    if layout.pipeline > checkpoint.layers:
        yield f"the model has only {checkpoint.layers} layers"


def _attention(checkpoint: Checkpoint, layout: Layout, dtype: str) -> Iterator[str]:
    tensor, heads = layout.tensor, checkpoint.attention_heads
    if reasons := head_problems(checkpoint, tensor):
        yield reasons[0]
        return
    mla = checkpoint.mla
    width = heads * (mla.v_head_dim if mla else checkpoint.head_dim)
    yield from _unaligned("width of the attention heads", width, tensor, checkpoint, dtype)


def _feed_forward(checkpoint: Checkpoint, layout: Layout, dtype: str) -> Iterator[str]:
    moe = checkpoint.moe
    if layout.expert > 1 and moe is None:
        yield "--enable-expert-parallel needs a model with experts"
    if moe is None or moe.first_dense_layers:
        yield from _divided(
            "intermediate size", checkpoint.intermediate_size, layout.tensor, checkpoint, dtype
        )
    if moe is not None and layout.expert == 1:
        ranks = expert_ranks(layout)
        yield from _divided("expert intermediate size", moe.intermediate_size, ranks, checkpoint, dtype)
    if moe is not None and not _sequence_parallel(layout):  # which leaves shared experts whole
        quantization = checkpoint.quantization
        kept = "" if quantization and quantization.plain_shared_experts else dtype
        width = moe.shared_intermediate_size
        yield from _divided("shared expert size", width, layout.tensor, checkpoint, kept)


def _sequence_parallel(layout: Layout) -> bool:
    """Whether ranks that share the attention divide the tokens (use_sequence_parallel_moe)."""
    return layout.expert > 1 and layout.tensor > 1 and layout.data > 1


def _adapters(checkpoint: Checkpoint, layout: Layout, values: Mapping[str, Any]) -> Iterator[str]:
    """What adapters of experts exclude (lora/layers/fused_moe.py, _ep_check and _verify_ep_fs)."""
    if layout.expert == 1 or not lora.are_served(checkpoint, values):
        return
    if values.get("all2all_backend", _EXPERT_EXCHANGE) != _EXPERT_EXCHANGE:
        yield f"adapters need --all2all-backend {_EXPERT_EXCHANGE} with --enable-expert-parallel"
    if _sequence_parallel(layout):
        yield "adapters exclude --enable-expert-parallel over several data-parallel groups of several ranks"
    if values.get("fully_sharded_loras"):
        yield "--fully-sharded-loras excludes --enable-expert-parallel"


def _divided(name: str, width: int, ranks: int, checkpoint: Checkpoint, dtype: str) -> Iterator[str]:
    if width % ranks:
        yield f"the {name} of {width} is not divisible by {ranks}"
    else:
        yield from _unaligned(name, width, ranks, checkpoint, dtype)


def _unaligned(name: str, width: int, ranks: int, checkpoint: Checkpoint, dtype: str) -> Iterator[str]:
    """A part that cuts through a block or group of quantised weights."""
    block = max(checkpoint.weight_block_size or (1,)) if dtype == "fp8" else 1
    unit, what = (_GROUP, f"{dtype.upper()} group") if dtype in _GROUPED else (block, "FP8 block")
    if ranks > 1 and (width // ranks) % unit:
        yield (
            f"the {name} of {width} in {ranks} parts gives {width // ranks}, not divisible by the {what} of "
            f"{unit}"
        )
