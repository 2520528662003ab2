"""Which layouts SGLang accepts: what it asserts when it starts and loads a model, reported before.

Sources, in sglang/srt: arg_groups/validation_hook.py (check_server_args, check_pipeline_parallel_compat),
arg_groups/parallel_hook.py (handle_deprecated_dp_attention, handle_data_parallelism), arg_groups/overrides.py
(_a2a_ep_size), runtime_context.py (derive_parallel_widths), models/llama.py, models/qwen2.py,
models/deepseek_v2.py, layers/quantization/fp8.py (validate_block_quant_shapes, create_fp8_moe_weight_),
entrypoints/engine.py (_calculate_rank_ranges), model_executor/model_runner.py (support_pp).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headfirst.decide.engines import drafts
from headfirst.decide.engines.base import Values
from headfirst.decide.engines.layout import (
    Layout,
    Machines,
    given_stages,
    head_problems,
    stage_layers,
    tower_problems,
    width_problems,
)
from headfirst.decide.engines.sglang.support import SupportTable
from headfirst.decide.model.checkpoint import Checkpoint

# Its language model is the one of its config (models/llava.py); the published ones have Llama's attention.
_UNDIVIDED_ATTENTION = "Mistral3ForConditionalGeneration"
# Their classes add heads to the part that reads images, or keep it whole (models/glm4v.py, kimi_k3_vl.py).
_ANY_RANKS = ("Glm4v", "GlmOcr", "InternVL", "KimiK3", "MuseSpark")


def layout(has: SupportTable, tensor: int, pipeline: int, values: Values) -> Layout:
    """The layout that results from these sizes and the arguments' values."""
    data, attention = values.get("dp_size", 1), values.get("attn_dp_size", 1)
    if values.get("enable_dp_attention") and attention == 1:  # the older spelling of --attn-dp-size
        data, attention = 1, data
    return Layout(
        tensor,
        pipeline,
        data=data,
        attention_data=attention,
        expert=tensor if _spanning(has, values) else values.get("ep_size", 1),
    )


def _spanning(has: SupportTable, values: Values) -> bool:
    """Whether expert parallelism spans the tensor ranks, whatever --ep-size is (arg_groups/overrides.py)."""
    return values.get("moe_a2a_backend") in has.spanning_exchanges or bool(values.get("enable_waterfill"))


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
    has: SupportTable,
    checkpoint: Checkpoint,
    machines: Machines,
    layout: Layout,
    *,
    dtype: str,
    values: Values,
) -> list[str]:
    """Why the layout is refused, one clause each."""
    return (
        _against_machines(machines, layout)
        or list(_against_itself(layout, adapters=bool(checkpoint.adapters)))
        or [
            *_pipeline(has, checkpoint, layout, values),
            *head_problems(checkpoint, layout.tensor // layout.attention_data),
            *_draft(checkpoint, layout, values),
            *_tower(checkpoint, layout, values),
            *_groups_and_experts(has, checkpoint, layout),
            *_widths(has, checkpoint, layout, dtype, values),
        ]
    )


def _against_machines(machines: Machines, layout: Layout) -> list[str]:
    # A stage is spread over whole nodes, or a node holds whole stages.
    if machines.nodes % layout.pipeline and layout.pipeline % machines.nodes:
        return [f"{layout.pipeline} pipeline stages and {machines.nodes} nodes do not divide each other"]
    if layout.data > 1 and machines.nodes > 1:
        return [f"--dp-size {layout.data} copies the model within one node only (--attn-dp-size spans nodes)"]
    return []


def _against_itself(layout: Layout, *, adapters: bool) -> Iterator[str]:
    if adapters and layout.attention_data > 1:
        # lora_manager.py, validate_new_adapter: only pinned ones, and --lora-paths NAME=FOLDER pins none.
        yield "--attn-dp-size loads no adapter of --lora-paths"
    if layout.data > 1 and layout.attention_data > 1:
        yield "--dp-size and --attn-dp-size exclude each other"
    if layout.tensor % layout.attention_data:
        yield f"tensor_parallel={layout.tensor} is not divisible by --attn-dp-size {layout.attention_data}"
    if layout.tensor % layout.expert:
        yield f"tensor_parallel={layout.tensor} is not divisible by --ep-size {layout.expert}"


def _draft(checkpoint: Checkpoint, layout: Layout, values: Values) -> Iterator[str]:
    """What a draft model excludes (arg_groups/speculative_hook.py)."""
    draft = checkpoint.draft
    if draft is None:
        return
    yield from drafts.head_reasons(checkpoint, layout.tensor // layout.attention_data)
    kind = draft.drafting.kind if draft.drafting else drafts.STANDALONE
    if layout.attention_data > 1 and kind == drafts.STANDALONE:
        yield "--attn-dp-size excludes a draft that is a model of its own"
    if layout.attention_data > 1 and kind in ("dflash", "dspark") and not values.get("enable_dp_lm_head"):
        yield f"--attn-dp-size needs --enable-dp-lm-head with a draft of {kind}"


def _pipeline(has: SupportTable, checkpoint: Checkpoint, layout: Layout, values: Values) -> Iterator[str]:
    if layout.pipeline == 1:
        return
    if layout.pipeline > checkpoint.layers:
        yield f"the model has only {checkpoint.layers} layers"
    if not checkpoint.external_class and has.lacks(checkpoint.architecture, "pipeline"):
        yield f"{checkpoint.architecture} cannot be divided into pipeline stages"
    if values.get("speculative_algorithm") and values.get("disaggregation_mode") != "prefill":
        yield "speculative decoding excludes pipeline parallelism"


def _tower(checkpoint: Checkpoint, layout: Layout, values: Values) -> list[str]:
    if values.get("mm_enable_dp_encoder") or checkpoint.architecture.startswith(_ANY_RANKS):
        return []
    return tower_problems(checkpoint, layout.tensor // layout.attention_data)


def _groups_and_experts(has: SupportTable, checkpoint: Checkpoint, layout: Layout) -> Iterator[str]:
    """What single architectures and ways to compute experts refuse (models/nemotron_h.py, layers/moe).

    MiMo-V2.5: arg_groups/model_hook.py and models/mimo_v2.py, load_mimo_v2_qkv_proj_weight.
    """
    name, state, kv_heads = checkpoint.architecture, checkpoint.recurrent, checkpoint.kv_heads
    attention = layout.tensor // layout.attention_data
    undivided = has.able("undivided_attention") | {_UNDIVIDED_ATTENTION}
    if layout.attention_data > 1 and name in undivided:
        yield f"SGLang does not divide the attention of {name}: --attn-dp-size 1"
    if state and state.kind == "mamba2" and state.groups > 1 and state.groups % attention:
        yield f"{state.groups} groups of Mamba-2 are not divisible by {attention}"
    if checkpoint.fused_qkv and kv_heads % attention:
        yield f"{kv_heads} parts of the fused attention projections are not divisible by {attention}"
    if name.startswith("NemotronH") and layout.expert not in (1, layout.tensor):
        yield f"--ep-size must be 1 or {layout.tensor} for {name}"
    experts = checkpoint.moe and checkpoint.moe.experts
    if experts and layout.expert > 1 and experts % layout.expert:
        yield f"{experts} experts are not divisible by --ep-size {layout.expert}"


def _widths(
    has: SupportTable, checkpoint: Checkpoint, layout: Layout, dtype: str, values: Values
) -> Iterator[str]:
    """Widths of the attention and of the feed-forward layers, against the number of parts into which they
    are divided, and the blocks or groups of the weights."""
    mla, moe, ranks = checkpoint.mla, checkpoint.moe, layout.tensor // layout.attention_data
    heads = checkpoint.attention_heads * (mla.v_head_dim if mla else checkpoint.head_dim)
    yield from width_problems("width of the attention heads", heads, ranks, checkpoint, dtype)
    if moe is None or moe.dense_layers:
        parts = values.get("moe_dense_tp_size", layout.tensor) if moe else layout.tensor
        width = checkpoint.intermediate_size
        yield from width_problems("intermediate size", width, parts, checkpoint, dtype)
    if moe is None:
        return
    parts = max(1, layout.tensor // layout.expert // values.get("moe_dp_size", 1))
    name, width = "expert intermediate size", moe.intermediate_size
    yield from width_problems(name, width, parts, checkpoint, dtype, experts=True)
    # An all-to-all back end gives every rank the shared experts whole. Without expert parallelism the shared
    # expert of DeepSeek V3 is one more routed expert (shared_experts_fusion_disable_reason).
    fused = layout.expert == 1 and checkpoint.architecture == "DeepseekV3ForCausalLM"
    if moe.shared_experts and not fused and not _spanning(has, values):
        width = moe.shared_intermediate_size or moe.intermediate_size * moe.shared_experts
        quantization = checkpoint.quantization
        kept = "" if quantization and quantization.plain_shared_experts else dtype
        yield from width_problems("shared expert size", width, layout.tensor, checkpoint, kept)
