"""Which layouts SGLang accepts: what it asserts when it starts and loads a model, reported before.

Sources, in sglang/srt: arg_groups/validation_hook.py (check_server_args, check_pipeline_parallel_compat),
arg_groups/parallel_hook.py (handle_deprecated_dp_attention, handle_data_parallelism), arg_groups/overrides.py
(_a2a_ep_size), runtime_context.py (derive_parallel_widths), models/llama.py, models/qwen2.py,
models/deepseek_v2.py, layers/quantization/fp8.py (validate_block_quant_shapes, create_fp8_moe_weight_),
entrypoints/engine.py (_calculate_rank_ranges), model_executor/model_runner.py (support_pp).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headfirst.decide.engines.layout import Layout, Machines, given_stages, head_problems, stage_layers
from headfirst.decide.engines.sglang import support
from headfirst.decide.model.checkpoint import Checkpoint

# Their expert parallelism spans the tensor ranks, whatever --ep-size is (_A2A_EP_SPANNING_BACKENDS).
_SPANNING = {
    "megamoe",
    "deepep",
    "deepep_v2",
    "mooncake",
    "nixl",
    "ascend_fuseep",
    "flashinfer",
    "flashinfer_megamoe",
    "mori",
    "pplx",
}


def layout(tensor: int, pipeline: int, values: Mapping[str, Any]) -> Layout:
    """The layout that results from these sizes and the arguments' values."""
    data, attention = values.get("dp_size", 1), values.get("attn_dp_size", 1)
    if values.get("enable_dp_attention") and attention == 1:  # the older spelling of --attn-dp-size
        data, attention = 1, data
    return Layout(
        tensor,
        pipeline,
        data=data,
        attention_data=attention,
        expert=tensor if _spanning(values) else values.get("ep_size", 1),
    )


def _spanning(values: Mapping[str, Any]) -> bool:
    return values.get("moe_a2a_backend") in _SPANNING or bool(values.get("enable_waterfill"))


def pipeline_layers(stage: int, stages: int, layers: int, environment: Mapping[str, str]) -> range:
    """Layers of a stage: distributed/utils.py, get_pp_indices.

    The last stages have one more where `layers` is not divisible.
    """
    counts = given_stages("SGLANG_PP_LAYER_PARTITION", environment, stages, layers) if stages > 1 else None
    if counts is None:
        least, more = divmod(layers, stages)
        counts = [least + (at >= stages - more) for at in range(stages)]
    return stage_layers(counts, stage)


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
    return (
        _against_machines(machines, wanted)
        or _against_itself(wanted)
        or [
            *_pipeline(version, checkpoint, wanted, values),
            *head_problems(checkpoint, wanted.tensor // wanted.attention_data),
            *_widths(checkpoint, wanted, dtype, values),
        ]
    )


def _against_machines(machines: Machines, wanted: Layout) -> list[str]:
    # A stage is spread over whole nodes, or a node holds whole stages.
    if machines.nodes % wanted.pipeline and wanted.pipeline % machines.nodes:
        return [f"{wanted.pipeline} pipeline stages and {machines.nodes} nodes do not divide each other"]
    if wanted.data > 1 and machines.nodes > 1:
        return [f"--dp-size {wanted.data} copies the model within one node only (--attn-dp-size spans nodes)"]
    return []


def _against_itself(wanted: Layout) -> list[str]:
    found = []
    if wanted.data > 1 and wanted.attention_data > 1:
        found.append("--dp-size and --attn-dp-size exclude each other")
    if wanted.tensor % wanted.attention_data:
        found.append(
            f"tensor_parallel={wanted.tensor} is not divisible by --attn-dp-size {wanted.attention_data}"
        )
    if wanted.tensor % wanted.expert:
        found.append(f"tensor_parallel={wanted.tensor} is not divisible by --ep-size {wanted.expert}")
    return found


def _pipeline(version: str, checkpoint: Checkpoint, wanted: Layout, values: Mapping[str, Any]) -> list[str]:
    if wanted.pipeline == 1:
        return []
    found = []
    if wanted.pipeline > checkpoint.layers:
        found.append(f"the model has only {checkpoint.layers} layers")
    if checkpoint.architecture not in support.table(version).pipeline:
        found.append(f"{checkpoint.architecture} cannot be divided into pipeline stages")
    if values.get("speculative_algorithm") and values.get("disaggregation_mode") != "prefill":
        found.append("speculative decoding excludes pipeline parallelism")
    return found


def _widths(checkpoint: Checkpoint, wanted: Layout, dtype: str, values: Mapping[str, Any]) -> list[str]:
    """The feed-forward widths that are divided, against the number of parts and the FP8 block."""
    block = max(checkpoint.weight_block_size) if checkpoint.weight_block_size and dtype == "fp8" else None
    found = []
    for name, width, parts in _divided(checkpoint, wanted, values):
        if width % parts:
            found.append(f"the {name} of {width} is not divisible by {parts}")
        elif block and (width // parts) % block:
            found.append(
                f"the {name} of {width} in {parts} parts gives {width // parts}, not divisible by the "
                f"FP8 block of {block}"
            )
    return found


def _divided(checkpoint: Checkpoint, wanted: Layout, values: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """(name, width, in how many parts) of the feed-forward layers."""
    moe = checkpoint.moe
    if moe is None:
        return [("intermediate size", checkpoint.intermediate_size, wanted.tensor)]
    parts = wanted.tensor // wanted.expert // values.get("moe_dp_size", 1)
    found = [("expert intermediate size", moe.intermediate_size, max(1, parts))]
    if moe.dense_layers:
        dense = values.get("moe_dense_tp_size", wanted.tensor)
        found.insert(0, ("intermediate size", checkpoint.intermediate_size, dense))
    # An all-to-all back end gives every rank the shared experts whole. Without expert parallelism the shared
    # expert of DeepSeek V3 is one more routed expert (shared_experts_fusion_disable_reason).
    fused = wanted.expert == 1 and checkpoint.architecture == "DeepseekV3ForCausalLM"
    if moe.shared_experts and not fused and not _spanning(values):
        width = moe.shared_intermediate_size or moe.intermediate_size * moe.shared_experts
        found.append(("shared expert size", width, wanted.tensor))
    return found
