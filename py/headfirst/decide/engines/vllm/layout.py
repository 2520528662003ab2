"""Which layouts vLLM accepts: what it raises when it makes its configuration or loads a model.

Source: config/model.py (verify_with_parallel_config), config/parallel.py (nnodes_within_dp),
models/llama.py and qwen3_moe.py (KV heads), layers/linear.py and fused_moe/layer.py (divide),
layers/quantization/utils/fp8_utils.py (validate_fp8_block_shape), auto_awq.py and marlin_utils.py (groups).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headfirst.decide.engines import drafts, lora
from headfirst.decide.engines.answers import Answers
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
from headfirst.decide.model.checkpoint import Checkpoint

_EXPERT_EXCHANGE = "allgather_reducescatter"  # the default of --all2all-backend
# Their classes keep whole what reads images, or what of it the ranks do not divide (models/*.py,
# is_vit_use_data_parallel); presets.yml keeps Glm4v's whole.
_ANY_RANKS = ("Gemma4", "Glm4v", "KimiK25", "KimiK3", "MuseGlimmer")
_WHOLE_SHARED_EXPERTS = (
    *("AXK1", "Deepseek", "GlmMoeDsa", "Kimi", "Llama4", "MiMoV2", "MistralLarge3", "NemotronH"),
    *("Qwen2Moe", "Qwen3"),
)


def layout(tensor: int, pipeline: int, values: Values) -> Layout:
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
    answers: Answers,
    checkpoint: Checkpoint,
    machines: Machines,
    layout: Layout,
    *,
    dtype: str,
    values: Values,
) -> list[str]:
    """Why the layout is refused, one clause each."""
    return [
        *_against_machines(machines, layout, values),
        *_stages(answers, checkpoint, layout),
        *_attention(checkpoint, layout, dtype),
        *_feed_forward(checkpoint, layout, dtype),
        *_tower(checkpoint, layout, values),
        *_adapters(checkpoint, layout, values),
        *drafts.head_reasons(checkpoint, draft_ranks(layout, values)),
    ]


def draft_ranks(layout: Layout, values: Values) -> int:
    """Ranks that divide a draft model: those of the model, or one."""
    return (values.get("speculative_config") or {}).get("draft_tensor_parallel_size") or layout.tensor


def _against_machines(machines: Machines, layout: Layout, values: Values) -> Iterator[str]:
    if layout.data % machines.nodes and machines.nodes % layout.data:
        yield f"{layout.data} data-parallel groups and {machines.nodes} nodes do not divide each other"
    if values.get("prefill_context_parallel_size", 1) > 1:
        yield "prefill context parallelism multiplies the ranks, which the plan does not count"


def _stages(answers: Answers, checkpoint: Checkpoint, layout: Layout) -> Iterator[str]:
    if layout.pipeline == 1:
        return
    if answers.support.lacks(checkpoint.architecture, "pp"):
        yield f"vLLM {answers.version} has no pipeline parallelism for {checkpoint.architecture}"
    if layout.pipeline > checkpoint.layers:
        yield f"the model has only {checkpoint.layers} layers"


def _attention(checkpoint: Checkpoint, layout: Layout, dtype: str) -> Iterator[str]:
    tensor, heads = layout.tensor, checkpoint.attention_heads
    if reasons := head_problems(checkpoint, tensor):
        yield reasons[0]
        return
    state = checkpoint.recurrent
    if state and state.kind == "mamba2" and state.groups > 1 and state.groups % tensor:
        yield f"{state.groups} groups of Mamba-2 are not divisible by {tensor}"
    if checkpoint.architecture.startswith("GptOss") and checkpoint.kv_heads % tensor:  # models/gpt_oss.py
        yield f"{checkpoint.kv_heads} KV heads are not divisible by {tensor}"
    width = heads * (checkpoint.mla.v_head_dim if checkpoint.mla else checkpoint.head_dim)
    yield from width_problems("width of the attention heads", width, tensor, checkpoint, dtype)


def _feed_forward(checkpoint: Checkpoint, layout: Layout, dtype: str) -> Iterator[str]:
    moe = checkpoint.moe
    if layout.expert > 1 and moe is None:
        yield "--enable-expert-parallel needs a model with experts"
    if moe is None or moe.first_dense_layers:
        width = checkpoint.intermediate_size
        yield from width_problems("intermediate size", width, layout.tensor, checkpoint, dtype)
    if moe is not None and layout.expert == 1:
        ranks = expert_ranks(layout)
        width = moe.intermediate_size
        name = "expert intermediate size"
        yield from width_problems(name, width, ranks, checkpoint, dtype, experts=True)
    # Their classes keep shared experts whole on ranks that divide the tokens (is_sequence_parallel).
    whole = _sequence_parallel(layout) and checkpoint.architecture.startswith(_WHOLE_SHARED_EXPERTS)
    if moe is not None and not whole:
        quantization = checkpoint.quantization
        kept = "" if quantization and quantization.plain_shared_experts else dtype
        width = moe.shared_intermediate_size
        yield from width_problems("shared expert size", width, layout.tensor, checkpoint, kept)


def _sequence_parallel(layout: Layout) -> bool:
    """Whether ranks that share the attention divide the tokens (use_sequence_parallel_moe)."""
    return layout.expert > 1 and layout.tensor > 1 and layout.data > 1


def _tower(checkpoint: Checkpoint, layout: Layout, values: Values) -> list[str]:
    whole = values.get("mm_encoder_tp_mode") == "data" or values.get("language_model_only")
    if whole or checkpoint.architecture.startswith(_ANY_RANKS):
        return []
    return tower_problems(checkpoint, layout.tensor)


def _adapters(checkpoint: Checkpoint, layout: Layout, values: Values) -> Iterator[str]:
    """What adapters of experts exclude (lora/layers/fused_moe.py, _ep_check and _verify_ep_fs)."""
    if layout.expert == 1 or not lora.are_served(checkpoint, values):
        return
    if values.get("all2all_backend", _EXPERT_EXCHANGE) != _EXPERT_EXCHANGE:
        yield f"adapters need --all2all-backend {_EXPERT_EXCHANGE} with --enable-expert-parallel"
    if _sequence_parallel(layout):
        yield "adapters exclude --enable-expert-parallel over several data-parallel groups of several ranks"
    if values.get("fully_sharded_loras"):
        yield "--fully-sharded-loras excludes --enable-expert-parallel"
