"""How vLLM divides the KV cache of a rank into blocks, and what of requests fits into it.

Layers that keep the same form groups, and all groups draw blocks from one pool. Source: 0.33.0,
v1/core/kv_cache_planning.py (groups, blocks, the check at start), v1/kv_cache_interface.py (blocks of a
request), platforms/interface.py (_align_hybrid_block_size), layers/mamba/mamba_utils.py (states).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from headfirst.decide.engines.base import CacheRoom, Values
from headfirst.decide.engines.drafts import token_bytes
from headfirst.decide.engines.layout import Layout
from headfirst.decide.engines.vllm.layout import draft_ranks, pipeline_layers
from headfirst.decide.hardware.gpus import Gpu
from headfirst.decide.model.caches import RecurrentState
from headfirst.decide.model.checkpoint import FLOATS, Checkpoint
from headfirst.decide.model.layer_types import LayerType

_BLOCK = 16
_MLA_BLOCK = 128  # beside recurrent states
_DELTA_NET_BLOCK = 64
# DeepSeek-V4: blocks of 256 tokens; pages have units of 576 bytes, and a slot 584 bytes.
_V4_BLOCK, _V4_UNIT, _V4_SLOT, _V4_INDEX = 256, 576, 584, 132
# What a block of states has: tokens, tokens of its window, bytes of a token (float32).
_V4_FOURS, _V4_FOURS_INDEX, _V4_HUNDREDS = (4, 8, 8192), (4, 8, 2048), (8, 128, 4096)
_V4_WINDOW = (64, 128, _V4_SLOT)
_WINDOWS: tuple[LayerType, ...] = ("sliding", "chunked")
# A KV cache of one byte an element; the names of the others begin otherwise or are the weights' own type.
_ONE_BYTE = ("fp8", "int8")
_HOPPER = 9  # compute capability 9.x
_BLACKWELL = 10  # of data centres: compute capability 10.x
_SPARSE_FP8 = 656
_INDEX_SCALE = 4  # bytes, for each 128 elements
# Layers of a kind fill up groups of the rarest kind, unless they are nearly as many.
_NEARLY = 1.5


@dataclass(frozen=True)
class Group:
    """`count` groups of layers that keep the same, and the blocks of one request by its tokens."""

    count: int
    blocks: Callable[[int], int]
    grows: bool  # with the tokens of the request


@dataclass(frozen=True)
class Blocks:
    """The cache of one rank: the bytes of a block, and its groups. `tokens`: of a block of growing groups.

    `states`: there are recurrent states, of which each request must have a block (config/compilation.py).
    """

    bytes: int
    tokens: int
    groups: tuple[Group, ...]
    states: bool = False

    def of_request(self, length: int) -> int:
        """Blocks of a request of `length` tokens."""
        return sum(group.count * group.blocks(length) for group in self.groups)

    @property
    def bytes_per_token(self) -> int:
        """What a further token takes."""
        return self.bytes * sum(group.count for group in self.groups if group.grows) // self.tokens

    def bytes_per_request(self, length: int) -> int:
        """What a request of `length` tokens takes in groups that do not grow with all its tokens."""
        return self.bytes * sum(
            group.count * group.blocks(length) for group in self.groups if not group.grows
        )

    def room(self, size: int, longest: int, cap: int | None) -> CacheRoom:
        """What fits into `size` bytes or the user's `cap` of blocks, with requests of `longest` tokens."""
        count = size // self.bytes if cap is None else cap
        share = count / self.of_request(longest)
        return CacheRoom(
            tokens=int(share * longest),
            # The pool keeps one block.
            longest=bisect_right(range(1, longest + 1), count - 1, key=self.of_request),
            requests=count if self.states else None,
        )


def blocks(
    checkpoint: Checkpoint,
    gpu: Gpu,
    layout: Layout,
    values: Values,
    *,
    in_flight: int,
    drafts: int,
) -> Blocks:
    """The blocks of the fullest stage.

    `in_flight` are the tokens of the steps that are computed at a time, `drafts` the layers of
    multi-token prediction that are loaded.
    """
    stages = layout.pipeline
    each = (pipeline_layers(stage, stages, checkpoint.layers, {}) for stage in range(stages))
    divided = (_stage(checkpoint, gpu, layout, values, stage, in_flight, drafts) for stage in each)
    return max(divided, key=lambda stage: stage.bytes * stage.of_request(checkpoint.max_context))


def _stage(
    checkpoint: Checkpoint,
    gpu: Gpu,
    layout: Layout,
    values: Values,
    stage: range,
    in_flight: int,
    drafts: int,
) -> Blocks:
    if checkpoint.compress_ratios:
        return _compressed(checkpoint, stage, in_flight)
    caching_layers = checkpoint.layers - checkpoint.shared_kv_layers
    kinds = checkpoint.kinds(range(stage.start, min(stage.stop, caching_layers)))
    whole = _token_bytes(checkpoint, gpu, layout, values, "full")
    full, sliding = kinds["full"], sum(kinds[kind] for kind in _WINDOWS)
    if checkpoint.architecture.startswith("MiMoV2"):  # its layers that draft have a window (mimo_v2_mtp.py)
        sliding += drafts
    else:
        full += drafts
    beside = _draft_bytes(checkpoint, gpu, layout, values)
    if sliding or kinds["linear"]:  # in layers of the model's size, which share its blocks
        full, beside = full - (-beside // whole), 0
    if sliding and _keeps_all(checkpoint, values):
        full, sliding = full + sliding, 0
    least = int(values.get("block_size") or _BLOCK)
    shared = int(values.get("decode_context_parallel_size", 1))
    if checkpoint.recurrent and (states := kinds["linear"]):
        return _with_states(checkpoint, gpu, layout, values, checkpoint.recurrent, full, states, whole, least)
    window = _token_bytes(checkpoint, gpu, layout, values, "sliding")
    index = _index_bytes(checkpoint, stage, drafts)
    if not sliding:
        return Blocks((whole * full + index + beside) * least, least, (_full(1, least * shared),))
    length = (checkpoint.sliding_window or 1) - 1 + in_flight
    if not full:
        return Blocks(window * sliding * least, least, (_sliding(1, least, length, grows=True),))
    kind = _chunked if kinds["chunked"] else _sliding
    size = _group_size(full, sliding)
    largest = max(whole, window)
    # The smaller of two pages has more tokens where that makes them equal; else it is padded.
    tokens, per_window = (least * (largest // each if largest % each == 0 else 1) for each in (whole, window))
    groups = (_full(-(-full // size), tokens), kind(-(-sliding // size), per_window, length))
    return Blocks(largest * least * size, tokens, groups)


def _draft_bytes(checkpoint: Checkpoint, gpu: Gpu, layout: Layout, values: Values) -> int:
    """Bytes of one token in the layers of a draft model, which is on the last stage."""
    draft = checkpoint.draft
    if draft is None:
        return 0
    config = values.get("speculative_config") or {}
    dtype = config.get("kv_cache_dtype") or _dtype(checkpoint, gpu, values)
    return token_bytes(draft, draft_ranks(layout, values), _element(dtype, draft))


def _keeps_all(checkpoint: Checkpoint, values: Values) -> bool:
    """Whether layers with a window keep all tokens: with drafts those with chunks do (config/vllm.py)."""
    drafted = "chunked" in checkpoint.layer_types and _speculative_tokens(values) > 0
    return drafted or bool(values.get("disable_hybrid_kv_cache_manager"))


def _with_states(
    checkpoint: Checkpoint,
    gpu: Gpu,
    layout: Layout,
    values: Values,
    state: RecurrentState,
    full: int,
    states: int,
    token_bytes: int,
    least: int,
) -> Blocks:
    """A block of attention layers has as many tokens as make it as large as a state."""
    drafted = _speculative_tokens(values)
    # models/config.py, NemotronHForCausalLMConfig.
    wide = state.kind == "kda" or checkpoint.architecture.startswith("NemotronH")
    state_bytes = _state_bytes(state, layout, values, drafted, 4 if wide else 2)
    aligned = values.get("enable_prefix_caching", True)
    # FlashInfer's prefill of a gated delta net writes states of 64 tokens (gdn/qwen_gdn_linear_attn.py).
    hopper = gpu.reaches((9, 0))
    flashinfer = aligned and state.kind == "gdn" and hopper and values.get("gdn_prefill_backend") != "triton"
    unit = max(least, _MLA_BLOCK if checkpoint.mla else _DELTA_NET_BLOCK if flashinfer else _BLOCK)
    tokens = unit * max(1, -(-state_bytes // (unit * token_bytes)))
    kimi = hopper and checkpoint.architecture.startswith("KimiK3")
    prefilled = state.kind == "mamba2" or flashinfer or kimi
    per_request = (2 + drafted + prefilled) if aligned else 1 + drafted
    size = _group_size(full, states) if full else states
    groups = (_full(-(-full // size), tokens), Group(-(-states // size), lambda _: per_request, grows=False))
    return Blocks(tokens * token_bytes * size, tokens, groups, states=True)


def _state_bytes(state: RecurrentState, layout: Layout, values: Values, drafted: int, element: int) -> int:
    """Bytes of one layer's state on one rank; groups of Mamba-2 are copied where ranks are more.

    `element`: of the matrices, where config.json does not state it.
    """
    tensor, groups = layout.tensor, state.groups
    if groups and groups % tensor:
        groups = tensor
    channels = (state.channels + 2 * groups * state.columns) // tensor
    inputs = channels * (state.conv_kernel - 1 + drafted) * _size(values.get("mamba_cache_dtype"), 2)
    matrices = state.heads // tensor * state.rows * state.columns
    stated = "" if state.kind == "kda" else state.dtype
    by_default = _size(stated, element)
    return inputs + matrices * _size(values.get("mamba_ssm_cache_dtype"), by_default)


def _size(dtype: str | None, otherwise: int) -> int:
    return {"float32": 4, "float16": 2, "bfloat16": 2}.get(dtype or "", otherwise)


def _speculative_tokens(values: Values) -> int:
    config = values.get("speculative_config") or {}
    return int(values.get("spec_tokens") or config.get("num_speculative_tokens") or 0)


def _group_size(first: int, second: int) -> int:
    fewest, most = sorted((first, second))
    return most if most < _NEARLY * fewest else fewest


def _full(count: int, tokens: int) -> Group:
    return Group(count, lambda length: -(-length // tokens), grows=True)


def _sliding(count: int, tokens: int, window: int, *, grows: bool = False) -> Group:
    """A window need not begin with a block (SlidingWindowSpec.max_admission_blocks_per_request)."""
    return Group(count, lambda length: -(-min(window, length) // tokens) + 1, grows)


def _chunked(count: int, tokens: int, window: int) -> Group:
    """The chunk, one token more than a window has, begins with a block."""
    return Group(count, lambda length: -(-min(window + 1, length) // tokens), grows=False)


def _compressed(checkpoint: Checkpoint, stage: range, in_flight: int) -> Blocks:
    """DeepSeek-V4: each layer has a window; some keep an entry for four tokens with an index, others for 128,
    and states of what is not compressed yet. Nothing is divided by ranks."""
    layers, ratios = len(stage), checkpoint.compress_ratios[stage.start : stage.stop]
    fours, hundreds = ratios.count(4), ratios.count(128)
    entries = fours * (_v4_page(_V4_BLOCK // 4, _V4_SLOT) + _v4_page(_V4_BLOCK // 4, _V4_INDEX))
    entries += hundreds * _v4_page(_V4_BLOCK // 128, _V4_SLOT)
    # Groups of windows and states have as many layers as the largest of the others.
    size = max(fours, hundreds, -(-layers // 2))
    states = [(_V4_FOURS, fours), (_V4_FOURS_INDEX, fours), (_V4_HUNDREDS, hundreds), (_V4_WINDOW, layers)]
    pages = {kind: min(count, size) * _v4_page(kind[0], kind[2]) for kind, count in states}
    largest = max(entries, pages[_V4_FOURS] + pages[_V4_FOURS_INDEX], pages[_V4_HUNDREDS], pages[_V4_WINDOW])
    groups = [_full(1, _V4_BLOCK)]
    for count, (tokens, window, _) in (
        (-(-layers // size), _V4_WINDOW),
        (int(fours > 0), _V4_FOURS),
        (int(hundreds > 0), _V4_HUNDREDS),
    ):
        groups.append(_sliding(count, tokens, window - 1 + in_flight))
    return Blocks(largest, _V4_BLOCK, tuple(groups))


def _v4_page(tokens: int, size: int) -> int:
    """Bytes of a page of `tokens` with `size` bytes each."""
    return -(-tokens * size // _V4_UNIT) * _V4_UNIT


def _token_bytes(checkpoint: Checkpoint, gpu: Gpu, layout: Layout, values: Values, kind: LayerType) -> int:
    """Bytes of one token in one layer; MLA keeps one latent vector, the same on every rank."""
    dtype = _dtype(checkpoint, gpu, values)
    if mla := checkpoint.mla:
        # Sparse attention in FP8: 512 bytes, four float32 scales and 64 rope elements of two bytes.
        # FlashInfer's kernels keep plain FP8: on 10.x, and on 9.x for fp8_e4m3 (mla_attention.py).
        major = gpu.compute_capability[0] if gpu.compute_capability else _BLACKWELL
        scaled = dtype == "fp8" if major == _HOPPER else major != _BLACKWELL and dtype.startswith(_ONE_BYTE)
        if dtype == "fp8_ds_mla" or (scaled and checkpoint.index is not None):
            return _SPARSE_FP8
        return (mla.kv_lora_rank + mla.qk_rope_head_dim) * _element(dtype, checkpoint)
    kv = checkpoint.kv(kind)
    return max(1, kv.heads // layout.tensor) * (kv.key_dim + kv.value_dim) * _element(dtype, checkpoint)


def _dtype(checkpoint: Checkpoint, gpu: Gpu, values: Values) -> str:
    """What the cache is stored in: the argument, else as the checkpoint's scales are for."""
    argument = str(values.get("kv_cache_dtype", "auto"))
    if argument != "auto":
        return argument
    datacentre = gpu.compute_capability is not None and gpu.compute_capability[0] == _BLACKWELL
    if checkpoint.architecture == "GlmMoeDsaForCausalLM" and datacentre:
        return "fp8"
    dtype = checkpoint.quantization.kv_cache if checkpoint.quantization else ""
    # The name of ModelOpt's FP8 (utils/torch_utils.py).
    return "fp8_e4m3" if dtype == "fp8" else dtype or argument


def _element(dtype: str, checkpoint: Checkpoint) -> int:
    """Bytes; `auto` is the type in which it computes."""
    if dtype == "auto":
        return FLOATS.get(checkpoint.dtype, 2)
    return 1 if dtype.startswith(_ONE_BYTE) else 2


def _index_bytes(checkpoint: Checkpoint, stage: range, drafts: int) -> int:
    """Bytes of one token in the indices of all layers of a stage, whole on every rank."""
    index = checkpoint.index
    if index is None:
        return 0
    layers = sum(layer in stage for layer in index.layers)
    if checkpoint.mla is None:  # MiniMax-M3: the vector in two bytes an element
        return (layers + drafts) * index.head_dim * 2
    return (layers + drafts) * (index.head_dim + -(-index.head_dim // 128) * _INDEX_SCALE)
