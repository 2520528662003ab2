"""How SGLang 0.5.22 and 0.5.23 divide a GPU's memory, before the model is loaded.

Source: sglang/srt/arg_groups/memory_hook.py (handle_gpu_memory_settings, reserve_for_graph_mb,
reserve_for_deepep_a2a_mb, adjust_mem_fraction_for_vlm) and cuda_graph_hook.py (the captured sizes).
SGLANG_ENABLE_POST_CAPTURE_KV_SIZING (off by default) divides it otherwise and is left out.
"""

from __future__ import annotations

from headfirst.decide.engines.base import MemoryFraction, MemoryUse, Values, cuda_overhead
from headfirst.decide.engines.layout import Layout
from headfirst.decide.engines.lora import estimated
from headfirst.decide.engines.sglang import kv_cache, lora
from headfirst.decide.engines.sglang.support import SupportTable
from headfirst.decide.hardware.gpus import MIB, Gpu
from headfirst.decide.model.checkpoint import Checkpoint

# (memory below this many MiB, chunked prefill, decode batch with tp < 4, with tp >= 4)
_DEFAULTS = (
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 4096, 48, 160),
    (60 * 1024, 4096, 32, 160),
    (160 * 1024, 8192, 256, 512),
)
_LARGEST = (16384, 512, 512)
_MAX_PREFILL_TOKENS = 16384
# Arguments with which the part of the model that reads images is not loaded.
_WITHOUT_IMAGES = ("language_only", "language_model_only")
_GPUS_OF_A_NODE = 8
_MARLIN_SCALES = (4 + 16 / 16) / (4 + 8 / 16)  # bits of a weight with its share of a scale
_TRTLLM_WIDTH = 128  # layers/moe, flashinfer_trtllm: of one expert's part
_BACKENDS_WITH_PREFILL_GRAPHS = frozenset({"none", "deepep", "megamoe", "flashinfer"})


def memory_use(
    has: SupportTable, checkpoint: Checkpoint, gpu: Gpu, layout: Layout, values: Values
) -> MemoryUse:
    """Bytes that the engine keeps out of weights and KV cache, item by item, and the fraction for these."""
    images = _reads_images(has, checkpoint, values)
    total_mib = gpu.memory_bytes // MIB
    terms = _terms(has, checkpoint, total_mib, layout, values, images=images)
    fraction = values.get("mem_fraction_static")
    if fraction is None:
        fraction = round((total_mib - sum(terms.values())) / total_mib, 3)
        if images:
            terms["images"] = fraction * total_mib * (1 - _image_factor(checkpoint))
            fraction *= _image_factor(checkpoint)
    else:
        terms = {"outside_mem_fraction_static": total_mib - float(fraction) * total_mib}
    argument = MemoryFraction("--mem-fraction-static", float(fraction), "mem_fraction_static" in values)
    if images:
        cache_mib = _image_cache_mib(checkpoint, gpu, layout, values)
        terms["image_cache"] = cache_mib
        fraction -= cache_mib / total_mib
    drafts = checkpoint.nextn_layers if values.get("speculative_algorithm") and not checkpoint.draft else 0
    cache = kv_cache.kv_cache(has, checkpoint, gpu, layout, values, drafts=drafts)
    if cache.fixed:
        terms["compression_states"] = cache.fixed / MIB
        fraction -= cache.fixed / gpu.memory_bytes
    if adapters := lora.buffer_bytes(checkpoint, layout, values):
        terms["adapters"] = adapters / MIB
        fraction -= adapters / (gpu.memory_bytes - cuda_overhead(layout))
    attention = max(1, layout.tensor // layout.attention_data)
    return MemoryUse(
        terms={name: int(mib * MIB) for name, mib in terms.items() if mib},
        static_fraction=float(fraction),
        kv_bytes_per_token=int(cache.bytes_per_token),
        state_bytes_per_request=cache.bytes_per_request,
        attention_tensor=attention,
        draft_layers=drafts,
        draft_tensor=attention,
        room=lambda size: cache.room(size, values.get("max_total_tokens")),
        max_context=values.get("context_length"),
        outside=cuda_overhead(layout),
        fraction=argument,
        embedding_tensor=1 if _whole_embedding(checkpoint, layout) else None,
        head_tensor=attention if values.get("enable_dp_lm_head") else None,
        expert_growth=_expert_growth(checkpoint, gpu, layout, values),
        vision_whole=bool(values.get("mm_enable_dp_encoder")),
        # utils/offloader.py, OffloaderV1: the parameters of layers, up to this size.
        host_weights=lambda layers: min(layers, values.get("cpu_offload_gb", 0) * 1024 * MIB),
        estimates=estimated(checkpoint) & terms.keys(),
    )


def _whole_embedding(checkpoint: Checkpoint, layout: Layout) -> bool:
    """Whether each rank has the vocabulary's embedding whole: always, or with DP attention (models/*.py)."""
    name = checkpoint.architecture
    return name.startswith("Gemma4") or (
        layout.attention_data > 1 and name.startswith(("DeepseekV4", "Qwen3_5", "Step3p"))
    )


def _expert_growth(checkpoint: Checkpoint, gpu: Gpu, layout: Layout, values: Values) -> float:
    """Marlin's kernels keep scales of NVFP4 in two bytes; those of Blackwell round widths up to 128, and have
    no W4A16 (arg_groups/model_overrides)."""
    moe, quantization = checkpoint.moe, checkpoint.quantization
    if moe is None:
        return 1.0
    if quantization is not None and "nvfp4" in quantization.schemes:
        return 1.0 if gpu.reaches((10, 0)) and not quantization.weight_only else _MARLIN_SCALES
    if not gpu.reaches((10, 0)):
        return 1.0
    width = moe.intermediate_size // max(1, layout.tensor // layout.expert)
    return -(-width // _TRTLLM_WIDTH) * _TRTLLM_WIDTH / width if width else 1.0


def _reads_images(has: SupportTable, checkpoint: Checkpoint, values: Values) -> bool:
    """By the list of architectures, or as the language model is one part of the config (is_multimodal)."""
    name = checkpoint.architecture
    inside = name in has.able("multimodal") or checkpoint.vision_tower is not None
    decodes = values.get("disaggregation_mode") == "decode"  # the prefill replica reads the images
    if not inside or decodes or any(values.get(flag) for flag in _WITHOUT_IMAGES):
        return False
    return bool(values.get("enable_multimodal")) or name not in has.able("images_when_asked")


def _image_factor(checkpoint: Checkpoint) -> float:
    """adjust_mem_fraction_for_vlm: the larger the tower, the less is left."""
    if not checkpoint.vision_tower:
        return 1.0
    layers, hidden = checkpoint.vision_tower
    if checkpoint.architecture.startswith("MiniMaxM3"):  # its config stays a dict, whose keys are not read
        layers, hidden = None, None
    size = (layers or 24) * (hidden or 1024) ** 2 / (24 * 1024**2)
    return 0.95 * min(1.05, max(0.8, 1 - 0.1 * (size - 1)))


def _image_cache_mib(checkpoint: Checkpoint, gpu: Gpu, layout: Layout, values: Values) -> int:
    """What images that are computed take beside the KV cache (model_overrides/qwen3_vl.py)."""
    hopper = gpu.reaches((9, 0)) and not gpu.reaches((10, 0)) and gpu.memory_bytes // MIB >= 60 * 1024
    if checkpoint.architecture.startswith("Qwen3VL") and hopper and layout.world <= _GPUS_OF_A_NODE:
        return 3072 if values.get("max_running_requests", 0) >= 400 else 1024
    return 1124 if values.get("mm_feature_transport") in ("cuda_ipc", "cuda_vmm") else 100


def _captures_prefill(
    has: SupportTable, checkpoint: Checkpoint, layout: Layout, values: Values, *, images: bool
) -> bool:
    """Whether prefill graphs are captured unasked (cuda_graph_hook.py)."""
    state = checkpoint.recurrent
    return not (
        layout.pipeline > 1
        or (state is not None and state.kind == "kda")
        or checkpoint.compress_ratios
        or values.get("moe_a2a_backend", "none") not in _BACKENDS_WITH_PREFILL_GRAPHS
        or (images and checkpoint.architecture not in has.able("images_with_prefill_graphs"))
    )


def _terms(
    has: SupportTable, checkpoint: Checkpoint, total_mib: int, layout: Layout, values: Values, *, images: bool
) -> dict[str, float]:
    """Reserved MiB by purpose."""
    chunk, few, many = next((defaults for below, *defaults in _DEFAULTS if total_mib < below), _LARGEST)
    chunk = values.get("chunked_prefill_size", chunk)
    requests = values.get("max_running_requests")
    batch = values.get("cuda_graph_max_bs_decode")  # the largest that is captured
    if batch is None:
        batch = min(few if layout.tensor < 4 else many, requests or _LARGEST[2])
    if values.get("cuda_graph_bs_decode"):
        batch = max(values["cuda_graph_bs_decode"])
    # Of a prefill and a decode replica each captures its own graphs only.
    role = values.get("disaggregation_mode")
    tokens = chunk if chunk > 0 else values.get("max_prefill_tokens", _MAX_PREFILL_TOKENS)
    if role == "decode":
        tokens = (requests or batch) * values.get("speculative_num_draft_tokens", 1)
    deepep = values.get("moe_a2a_backend") == "deepep"
    decode_graphs = _graphs(values, "decode", by_default=True) and role != "prefill"
    terms: dict[str, float] = {
        "metadata": 512,
        "activations": max(tokens, 2048) * 1.5,
        "parallel_buffers": layout.world / 8 * 1024,
        "decode_graphs": batch * 2 * decode_graphs,
    }
    if layout.attention_data > 1 and role != "prefill":  # padding
        terms["data_parallel_attention"] = batch * layout.attention_data * (4.5 if batch > 300 else 3)
    by_default = _captures_prefill(has, checkpoint, layout, values, images=images)
    sizes = _prefill_sizes(chunk, layout, values, by_default=by_default) if role != "decode" else None
    if sizes is not None:
        terms["prefill_graphs"] = (1536 if checkpoint.mla else sizes * 8) + 1024 * deepep
    if total_mib > 60 * 1024:
        terms["floor_10_gib"] = max(0.0, 10 * 1024 - sum(terms.values()))
    if deepep and decode_graphs:
        terms["deepep_buffers"] = 2048
    return terms


def _graphs(values: Values, phase: str, *, by_default: bool) -> bool:
    """Whether CUDA graphs are captured for `phase`; its backend's name wins over the switches."""
    backend = values.get(f"cuda_graph_backend_{phase}")
    if backend is not None:
        return bool(backend != "disabled")
    switched_off = values.get("disable_cuda_graph") or values.get(f"disable_{phase}_cuda_graph")
    return by_default and not switched_off


def _prefill_sizes(chunk: int, layout: Layout, values: Values, *, by_default: bool) -> int | None:
    """How many prefill sizes the engine captures; None where it captures none."""
    if not _graphs(values, "prefill", by_default=by_default):
        return None
    if values.get("cuda_graph_bs_prefill"):
        return len(values["cuda_graph_bs_prefill"])
    if "cuda_graph_max_bs_prefill" in values:
        largest = int(values["cuda_graph_max_bs_prefill"])
    else:
        largest = min(chunk, int(values.get("max_total_tokens", chunk)))
        if layout.pipeline > 1:
            largest = min(largest, 8192)
    sizes = [
        *range(4, 33, 4),
        *range(48, 257, 16),
        *range(288, 513, 32),
        *range(576, 1025, 64),
        *range(1280, 4097, 256),
        *range(4608, largest + 1, 512),
    ]
    return len([size for size in sizes if size <= largest])
