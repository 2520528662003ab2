"""How SGLang divides the bytes for the KV cache on a rank, by what the layers of the model keep.

Source: 0.5.23, sglang/srt/mem_cache/kv_cache_configurator.py (states of requests, the rest),
model_executor/pool_configurator.py (bytes of a token), mem_cache/kv_cache_dtype.py and
arg_groups/overrides.py (element), configs/mamba_utils.py (states), configs/model_config.py (index).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from headfirst.decide.engines.base import CacheRoom, Values
from headfirst.decide.engines.drafts import token_bytes
from headfirst.decide.engines.layout import Layout
from headfirst.decide.engines.sglang.layout import pipeline_layers
from headfirst.decide.engines.sglang.support import SupportTable
from headfirst.decide.hardware.gpus import Gpu
from headfirst.decide.model.caches import RecurrentState
from headfirst.decide.model.checkpoint import FLOATS, Checkpoint, Mla
from headfirst.decide.model.layer_types import LayerType

_BLACKWELL = 10  # compute capability 10.x in data centres, 12.x elsewhere
_TWO_BYTES = ("auto", "bf16", "bfloat16")
_INDEX_SCALE = 4  # bytes, for each 128 elements
_SPARSE_FP8 = 656  # 512 bytes, four float32 scales, 64 rope elements of two bytes
_WINDOW_TOKENS = 0.8  # of the window's pool, for each token of the other (--swa-full-tokens-ratio)
_STATE_RATIO = 0.9  # bytes of states for each byte of tokens (--mamba-full-memory-ratio)
_CONVOLUTION_ELEMENT = 2
# DeepSeek-V4. A slot: 448 elements of one byte, 64 of two, eight bytes of scales; a page has units of 576.
_V4_SLOT, _V4_UNIT, _V4_PAGE = 584, 576, 256
_V4_WINDOW_TOKENS = 0.1
_V4_INDEX = 132
_V4_RING, _V4_RING_DRAFTING = 8, 16
_V4_STATE = 2 * 2 * 512 * 4 + 2 * 2 * 128 * 4  # float32, of a layer that compresses four tokens
_V4_REQUESTS = 256
_V4_LARGE_ROW = 2 * 512 * 4  # float32, of a layer that compresses 128 tokens
# Their draft layers are not in num_nextn_predict_layers, which SGLang counts: their cache is beside the pool.
_DRAFTS_BESIDE = "Qwen3_5"
_SPECULATIVE_REQUESTS = 48
_DRAFT_TOKENS = 4
# Kinds of draft models whose cache is counted by their own heads; layers of others count as the target's
# (model_executor/pool_configurator.py).
_COUNTED_BY_DRAFT = ("dflash", "dspark")


@dataclass(frozen=True)
class KvCache:
    """Bytes of a further token; `fixed` are taken beside the cache, whatever the requests are.

    `state` is one request's recurrent state in all layers, of which `copies` are kept; `ratio` bytes of
    states go with each byte of tokens.
    """

    bytes_per_token: float
    fixed: int = 0
    state: int = 0
    copies: int = 1
    ratio: float = _STATE_RATIO
    slots: int | None = None  # of states, where the user sets them
    drafted: int = 0  # tokens of speculative decoding, each with a state
    running: int = 0  # requests at a time, with speculative decoding
    most: int = 1 << 31  # requests at a time, by the user's arguments

    @property
    def bytes_per_request(self) -> int:
        """Bytes of the states that one request keeps."""
        return self.state * self.copies

    def room(self, size: int, cap: int | None) -> CacheRoom:
        """What fits into `size` bytes; `cap`: the user's own limit in tokens."""
        if not self.state:
            return self._tokens(size, None, cap)
        slots = self._slots(size)
        requests = min(slots // self.copies, self.most)
        extra = (min(self.running, requests) + 1) * self.drafted
        return self._tokens(size - (slots + 1 + extra) * self.state, requests, cap)

    def _slots(self, size: int) -> int:
        if self.slots is not None:
            return self.slots
        share = size * self.ratio / (1 + self.ratio)
        each = self.state * (1 + self.drafted / self.copies)
        return max(0, int((share - self.state * (1 + self.drafted)) // each))

    def _tokens(self, size: int, requests: int | None, cap: int | None) -> CacheRoom:
        tokens = max(0, int(size / self.bytes_per_token)) if requests != 0 else 0
        tokens = tokens if cap is None else min(tokens, cap)
        return CacheRoom(tokens, tokens, requests)


def kv_cache(
    has: SupportTable,
    checkpoint: Checkpoint,
    gpu: Gpu,
    layout: Layout,
    values: Values,
    *,
    drafts: int,
) -> KvCache:
    """The cache of the fullest stage. `drafts` are the checkpoint's layers of multi-token prediction that are
    loaded."""
    stages = layout.pipeline
    each = (pipeline_layers(stage, stages, checkpoint.layers, {}) for stage in range(stages))
    caches = (_stage(has, checkpoint, gpu, layout, values, stage, drafts) for stage in each)
    return max(caches, key=lambda cache: cache.bytes_per_token)


def _stage(
    has: SupportTable,
    checkpoint: Checkpoint,
    gpu: Gpu,
    layout: Layout,
    values: Values,
    stage: range,
    drafts: int,
) -> KvCache:
    if draft := checkpoint.draft:
        drafts = draft.nextn_layers or draft.layers
    if checkpoint.compress_ratios:
        return _compressed(checkpoint, layout, values, stage, drafts)
    attention = max(1, layout.tensor // layout.attention_data)
    kinds = checkpoint.kinds(stage)
    layers, window_layers = kinds["full"], kinds["sliding"] + kinds["chunked"]
    if checkpoint.recurrent is None:  # layers without attention have a part of the pool, too
        layers += kinds["none"]
    element = _element(checkpoint, gpu, values)
    if checkpoint.mla:
        token = _latent_bytes(checkpoint, checkpoint.mla, gpu, element)
    else:
        token = _head_bytes(checkpoint, attention, element, "full")
    windows: float = 0
    if checkpoint.architecture in has.able("window_pool") and not values.get("disable_hybrid_swa_memory"):
        ratio = values.get("swa_full_tokens_ratio", _WINDOW_TOKENS) if layers else 1
        windows = ratio * window_layers * _head_bytes(checkpoint, attention, element, "sliding")
    else:
        layers += window_layers
    size = layers * token + windows
    if checkpoint.architecture.startswith(_DRAFTS_BESIDE) and draft is None:
        drafts = 0
    if draft and draft.drafting and (draft.drafting.shares_cache or draft.drafting.kind in _COUNTED_BY_DRAFT):
        size += token_bytes(draft, attention, element)
        drafts = 0
    size += int(size * drafts / max(1, layers)) + _index_bytes(checkpoint, stage, drafts)
    linear = kinds["linear"]
    if not (checkpoint.recurrent and linear):
        return KvCache(size)
    state = linear * _state(checkpoint.recurrent, attention, values)
    return _with_states(has, checkpoint, layout, values, size, state)


def _element(checkpoint: Checkpoint, gpu: Gpu, values: Values) -> int:
    """Bytes of an element: by the argument, else by the GPU for sparse attention, else by the checkpoint."""
    kind = values.get("kv_cache_dtype", "auto")
    if kind not in _TWO_BYTES:
        return 1
    if kind != "auto":
        return 2
    if checkpoint.mla and checkpoint.index:
        return 1 if gpu.reaches((_BLACKWELL, 0)) else 2
    if checkpoint.quantization and checkpoint.quantization.kv_cache == "fp8":
        return 1
    return FLOATS.get(checkpoint.dtype, 2)


def _latent_bytes(checkpoint: Checkpoint, mla: Mla, gpu: Gpu, element: int) -> int:
    """MLA's latent vector of one token in one layer, the same on every rank."""
    size = (mla.kv_lora_rank + mla.qk_rope_head_dim) * element
    if not checkpoint.index or element == 2 or gpu.compute_capability is None:
        return size
    # With trtllm's kernels the vector has no scales of its own.
    major = gpu.compute_capability[0]
    scaled = major < _BLACKWELL or (major > _BLACKWELL and checkpoint.architecture == "GlmMoeDsaForCausalLM")
    return _SPARSE_FP8 if scaled else size


def _head_bytes(checkpoint: Checkpoint, attention: int, element: int, kind: LayerType) -> int:
    kv = checkpoint.kv(kind)
    return max(1, kv.heads // attention) * (kv.key_dim + kv.value_dim) * element


def _index_bytes(checkpoint: Checkpoint, stage: range, drafts: int) -> int:
    """The index of sparse attention of one token in all its layers, whole on every rank."""
    index = checkpoint.index
    if index is None:
        return 0
    layers = sum(layer in stage for layer in index.layers)
    if checkpoint.mla:
        return (layers + drafts) * (index.head_dim + -(-index.head_dim // 128) * _INDEX_SCALE)
    return layers * index.head_dim * 2  # MiniMax-M3


def _state(state: RecurrentState, attention: int, values: Values) -> int:
    """Bytes of one layer's state on one rank; groups of Mamba-2 are copied where ranks are more."""
    groups = state.groups
    if groups and groups % attention:
        groups = attention
    channels = (state.channels + 2 * groups * state.columns) // attention
    stated = "" if state.kind == "kda" else state.dtype
    dtype = values.get("mamba_ssm_dtype") or stated or "float32"
    matrices = state.heads // attention * state.rows * state.columns * (4 if dtype == "float32" else 2)
    return channels * (state.conv_kernel - 1) * _CONVOLUTION_ELEMENT + matrices


def _with_states(
    has: SupportTable,
    checkpoint: Checkpoint,
    layout: Layout,
    values: Values,
    token: float,
    state: int,
) -> KvCache:
    groups = layout.groups
    speculative = values.get("speculative_algorithm") is not None
    by_default = _SPECULATIVE_REQUESTS if speculative else None
    slots, running = values.get("max_mamba_cache_size"), values.get("max_running_requests", by_default)
    cached = not values.get("disable_radix_cache")
    if slots is None and not cached and running:
        slots = max(1, running)
    return KvCache(
        token,
        state=state,
        copies=_copies(has, checkpoint, layout, values) if cached else 1,
        ratio=values.get("mamba_full_memory_ratio", _STATE_RATIO),
        slots=None if slots is None else slots // groups,
        drafted=values.get("speculative_num_draft_tokens", _DRAFT_TOKENS) if speculative else 0,
        most=running // groups if running else 1 << 31,
        running=running // groups if running and speculative else 0,
    )


def _copies(has: SupportTable, checkpoint: Checkpoint, layout: Layout, values: Values) -> int:
    """States that a request keeps beside the prefix cache: three, and those by which it is tracked."""
    strategy = values.get("mamba_radix_cache_strategy", "auto")
    if strategy == "auto":
        strategy = "extra_buffer" if checkpoint.architecture in has.able("tracked_states") else "no_buffer"
    overlaps = layout.pipeline == 1 and not values.get("disable_overlap_schedule")
    return 3 + {"extra_buffer": 2 if overlaps else 1, "extra_buffer_lazy": 1}.get(strategy, 0)


def _compressed(checkpoint: Checkpoint, layout: Layout, values: Values, stage: range, drafts: int) -> KvCache:
    """DeepSeek-V4: each layer has a window; some keep an entry for four tokens with an index, others for 128.

    Nothing is divided by ranks.
    """
    layers = len(stage)
    ratios = checkpoint.compress_ratios[stage.start : stage.stop]
    fours, hundreds = ratios.count(4), ratios.count(128)
    ring = _V4_RING_DRAFTING if drafts else _V4_RING
    window = _v4_slot(_V4_PAGE) * layers + ring / _V4_PAGE * _V4_STATE * fours
    size = _V4_WINDOW_TOKENS * window
    size += fours * (_v4_slot(_V4_PAGE // 4) + _V4_INDEX) / 4
    size += hundreds * _v4_slot(_V4_PAGE // 128) / 128
    size *= (layers + drafts) / layers
    requests = values.get("max_running_requests", _V4_REQUESTS) // layout.groups
    rows = (requests + 1) * 256 + 257 if drafts else (requests + 1) * 128 + 129
    return KvCache(size, fixed=hundreds * ceil(rows / 128) * 128 * _V4_LARGE_ROW)


def _v4_slot(tokens: int) -> float:
    """Bytes of a token in a page of `tokens`."""
    return ceil(tokens * _V4_SLOT / _V4_UNIT) * _V4_UNIT / tokens
