"""How SGLang 0.5.22 and 0.5.23 divide a GPU's memory, before the model is loaded.

Source: sglang/srt/arg_groups/memory_hook.py (handle_gpu_memory_settings, reserve_for_graph_mb,
reserve_for_deepep_a2a_mb), cuda_graph_hook.py (the captured sizes), speculative_hook.py (48 requests) and
model_executor/pool_configurator.py (bytes per token). Multimodal models and
SGLANG_ENABLE_POST_CAPTURE_KV_SIZING (off by default) divide it otherwise and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headfirst.decide.engines.base import MemoryUse, MoreMemory, cuda_overhead, room_by_token
from headfirst.decide.engines.layout import Layout
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
_SPECULATIVE_REQUESTS = 48
# The fraction that SGLang's own documentation begins with; its formula leaves more to activations.
_LARGER_FRACTION = 0.88


@dataclass(frozen=True)
class _Settings:
    """What the engine resolves its arguments to."""

    activation_tokens: int
    decode_batch: int  # 0: no decode graphs
    prefill_sizes: int | None  # how many prefill sizes are captured; None: no prefill graphs
    deepep: bool
    draft_layers: int


def memory_use(checkpoint: Checkpoint, gpu: Gpu, layout: Layout, values: Mapping[str, Any]) -> MemoryUse:
    """Bytes that the engine keeps out of weights and KV cache, item by item, and the fraction for these."""
    settings = _resolve(checkpoint, gpu, layout, values)
    total_mib = gpu.memory_bytes // MIB
    terms = _terms(checkpoint, total_mib, layout, settings)
    fraction, more = values.get("mem_fraction_static"), None
    if fraction is None:
        fraction = round((total_mib - sum(terms.values())) / total_mib, 3)
        if fraction < _LARGER_FRACTION:
            more = MoreMemory(f"--mem-fraction-static {_LARGER_FRACTION}", _LARGER_FRACTION)
    else:
        terms = {"outside_mem_fraction_static": total_mib - float(fraction) * total_mib}
    attention = max(1, layout.tensor // layout.attention_data)
    per_token = _kv_bytes(checkpoint, attention, layout, settings, values)
    return MemoryUse(
        terms={name: int(mib * MIB) for name, mib in terms.items() if mib},
        static_fraction=float(fraction),
        kv_bytes_per_token=per_token,
        attention_tensor=attention,
        draft_layers=settings.draft_layers,
        room=room_by_token(per_token, values.get("max_total_tokens")),
        max_context=values.get("context_length"),
        outside=cuda_overhead(layout),
        more=more,
    )


def _resolve(checkpoint: Checkpoint, gpu: Gpu, layout: Layout, values: Mapping[str, Any]) -> _Settings:
    chunk, few, many = _LARGEST
    for below, chunk_default, few_default, many_default in _DEFAULTS:
        if gpu.memory_bytes // MIB < below:
            chunk, few, many = chunk_default, few_default, many_default
            break
    chunk = values.get("chunked_prefill_size", chunk)
    speculative = values.get("speculative_algorithm") is not None
    requests = values.get("max_running_requests", _SPECULATIVE_REQUESTS if speculative else None)
    batch = values.get("cuda_graph_max_bs_decode")
    if batch is None:
        batch = min(few if layout.tensor < 4 else many, requests or _LARGEST[2])
    if values.get("cuda_graph_bs_decode"):
        batch = max(values["cuda_graph_bs_decode"])
    # Of a prefill and a decode replica each captures its own graphs only.
    role = values.get("disaggregation_mode")
    tokens = chunk if chunk > 0 else values.get("max_prefill_tokens", _MAX_PREFILL_TOKENS)
    if role == "decode":
        tokens = (requests or batch) * values.get("speculative_num_draft_tokens", 1)
    return _Settings(
        activation_tokens=max(tokens, 2048),
        decode_batch=batch if _graphs(values, "decode", by_default=True) and role != "prefill" else 0,
        prefill_sizes=_prefill_sizes(chunk, layout, values) if role != "decode" else None,
        deepep=values.get("moe_a2a_backend") == "deepep",
        draft_layers=checkpoint.nextn_layers if speculative else 0,
    )


def _terms(checkpoint: Checkpoint, total_mib: int, layout: Layout, settings: _Settings) -> dict[str, float]:
    """Reserved MiB by purpose."""
    terms: dict[str, float] = {
        "metadata": 512,
        "activations": settings.activation_tokens * 1.5,
        "parallel_buffers": layout.world / 8 * 1024,
        "decode_graphs": settings.decode_batch * 2,
    }
    if layout.attention_data > 1:
        padding = 4.5 if settings.decode_batch > 300 else 3
        terms["data_parallel_attention"] = settings.decode_batch * layout.attention_data * padding
    if settings.prefill_sizes is not None:
        terms["prefill_graphs"] = 1536 if checkpoint.mla else settings.prefill_sizes * 8
        if settings.deepep:
            terms["prefill_graphs"] += 1024
    if total_mib > 60 * 1024:
        terms["floor_10_gib"] = max(0.0, 10 * 1024 - sum(terms.values()))
    if settings.deepep and settings.decode_batch:
        terms["deepep_buffers"] = 2048
    return terms


def _graphs(values: Mapping[str, Any], phase: str, *, by_default: bool) -> bool:
    """Whether CUDA graphs are captured for `phase`; its backend's name wins over the switches."""
    backend = values.get(f"cuda_graph_backend_{phase}")
    if backend is not None:
        return bool(backend != "disabled")
    switched_off = values.get("disable_cuda_graph") or values.get(f"disable_{phase}_cuda_graph")
    return by_default and not switched_off


def _prefill_sizes(chunk: int, layout: Layout, values: Mapping[str, Any]) -> int | None:
    """How many prefill sizes the engine captures; pipeline stages capture none unless asked to."""
    if not _graphs(values, "prefill", by_default=layout.pipeline == 1):
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


def _kv_bytes(
    checkpoint: Checkpoint,
    attention: int,
    layout: Layout,
    settings: _Settings,
    values: Mapping[str, Any],
) -> int:
    """KV cache bytes of one token on one rank; MLA keeps one latent vector, the same on every rank."""
    kind = values.get("kv_cache_dtype", "auto")
    element = 2 if kind in ("auto", "bf16", "bfloat16") else 1
    layers = -(-checkpoint.layers // layout.pipeline) + settings.draft_layers
    if checkpoint.mla:
        return (checkpoint.mla.kv_lora_rank + checkpoint.mla.qk_rope_head_dim) * layers * element
    return max(1, checkpoint.kv_heads // attention) * 2 * checkpoint.head_dim * layers * element
