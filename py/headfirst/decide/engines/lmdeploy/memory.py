"""How LMDeploy divides a GPU's memory: the weights, then a fraction of what is free for the KV cache.

Source: 0.18.0, pytorch/engine/executor/base.py (_get_runtime_size, _update_num_gpu_blocks), utils.py
(get_max_batch_size), pytorch/engine/cache_engine/schema.py; 0.16.0, src/turbomind/turbomind.cc
(CreateEngine). TurboMind takes its fraction without the runtime buffers; they are counted for both, so that
the plan holds for either. The recurrent states of hybrid models and the index of sparse attention are left
out.
"""

from __future__ import annotations

from headfirst.decide.engines.base import MemoryFraction, MemoryUse, Values, cuda_overhead, room_by_token
from headfirst.decide.engines.drafts import token_bytes
from headfirst.decide.engines.host_memory import HostRequest, KeptMemory, connectors
from headfirst.decide.engines.layout import Layout
from headfirst.decide.engines.lmdeploy import draft, lora
from headfirst.decide.engines.lmdeploy.layout import attention_tensor
from headfirst.decide.engines.lora import estimated
from headfirst.decide.hardware.gpus import Gpu
from headfirst.decide.model.checkpoint import Checkpoint

# Largest batch by a part of the GPU's name.
_BATCH = {"a100": 384, "a800": 384, "h100": 1024, "h800": 1024, "l20y": 1024, "h200": 1024}
_OTHER_BATCH = 128
_BLOCK_TOKENS = 64
_DRAFT_ELEMENT = 2  # bytes of the KV cache of a draft model, at most
# Bits of one element of the KV cache, key and value, by --quant-policy.
_BITS = {"4": (4, 4), "8": (8, 8), "16": (8, 8), "17": (8, 8), "42": (4, 2)}
_NAMES = {"int4": "4", "int8": "8", "fp8": "16", "fp8_e4m3": "16", "fp8_e5m2": "17", "turbo_quant": "42"}
# Two-byte scales and zero points that a head has for each token.
_SCALES = {"4": 4, "8": 4, "42": 3}
# 0.18.0, pytorch/kv_connector/mooncake/store/data.py; the sizes are in a file that is not read.
_MOONCAKE_NOTE = (
    "--kv-transfer-config: each rank keeps global_segment_size and local_buffer_size of Mooncake's file in "
    "host memory, 4 GiB each by default, which the plan does not count."
)


def host_memory(request: HostRequest) -> KeptMemory:
    """A note on Mooncake's store, which alone keeps anything in the host's memory."""
    stores = any(connectors(request.values.get("kv_transfer_config")))
    return KeptMemory(notes=(_MOONCAKE_NOTE,) if stores else ())


def memory_use(checkpoint: Checkpoint, gpu: Gpu, layout: Layout, values: Values) -> MemoryUse:
    """The runtime buffers, and the fraction of the rest that becomes KV cache."""
    batch = values.get("max_batch_size") or _batch(gpu)
    tokens = values.get("max_prefill_token_num", 8192) + 2 * batch
    terms = {"runtime_buffers": tokens * checkpoint.vocab_size * 2}
    if layout.expert > 1 and layout.attention_data > 1:
        terms["copied_dense_layers"] = _copied_bytes(checkpoint, layout)
    if adapters := lora.adapter_bytes(checkpoint, layout):
        terms["adapters"] = adapters
    attention, share = attention_tensor(layout, values), float(values.get("cache_max_entry_count", 0.8))
    outside, blocks = cuda_overhead(layout), values.get("num_gpu_blocks")
    per_token = _kv_bytes(checkpoint, attention, values) // int(values.get("cp", 1))
    if checkpoint.draft:
        per_token += token_bytes(checkpoint.draft, draft.ranks(checkpoint, attention), _DRAFT_ELEMENT)
    return MemoryUse(
        terms=terms,
        static_fraction=1 - sum(terms.values()) / (gpu.memory_bytes - outside),
        max_context=values.get("session_len"),
        outside=outside,
        pool_fraction=share,
        fraction=MemoryFraction("--cache-max-entry-count", share, "cache_max_entry_count" in values),
        kv_bytes_per_token=per_token,
        attention_tensor=attention,
        draft_layers=checkpoint.nextn_layers if _predicts(checkpoint, values) else 0,
        draft_tensor=draft.ranks(checkpoint, layout.tensor),
        estimates=frozenset({"adapters"} if checkpoint.moe or checkpoint.mla else estimated(checkpoint))
        & terms.keys(),
        room=room_by_token(
            per_token, blocks * values.get("cache_block_seq_len", _BLOCK_TOKENS) if blocks else None
        ),
    )


def _predicts(checkpoint: Checkpoint, values: Values) -> bool:
    return values.get("speculative_algorithm") == "deepseek_mtp" and checkpoint.draft is None


def _batch(gpu: Gpu) -> int:
    return next((size for name, size in _BATCH.items() if name in gpu.name.lower()), _OTHER_BATCH)


def _copied_bytes(checkpoint: Checkpoint, layout: Layout) -> int:
    """With --dp and --ep every rank holds the dense and the shared feed-forward layers whole."""
    moe = checkpoint.moe
    if moe is None:
        return 0
    dense = moe.first_dense_layers * checkpoint.intermediate_size
    shared = (checkpoint.layers - moe.first_dense_layers) * moe.shared_experts * moe.intermediate_size
    whole = 3 * checkpoint.hidden_size * (dense + shared) * (1 if checkpoint.dtype == "fp8" else 2)
    return whole - whole // layout.tensor


def _kv_bytes(checkpoint: Checkpoint, attention: int, values: Values) -> int:
    """KV cache bytes of one token on one rank; MLA keeps one latent vector, the same on every rank."""
    setting = str(values.get("quant_policy", "0"))
    policy = _NAMES.get(setting, setting)
    key_bits, value_bits = _BITS.get(policy, (16, 16))
    if checkpoint.mla:
        heads, key, value = 1, checkpoint.mla.kv_lora_rank + checkpoint.mla.qk_rope_head_dim, 0
    else:
        heads, key, value = max(1, checkpoint.kv_heads // attention), *[checkpoint.head_dim] * 2
    head = (key * key_bits + value * value_bits) // 8 + 2 * _SCALES.get(policy, 0)
    return heads * head * checkpoint.layers
