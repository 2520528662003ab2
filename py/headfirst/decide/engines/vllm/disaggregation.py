"""Prefill and decode as two kinds of vLLM servers, whose KV cache NIXL carries (0.33.0).

Sources: vllm/distributed/kv_transfer/kv_connector/v1/nixl (metadata.py, base_worker.py), config/vllm.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headfirst.decide.engines.base import Disaggregation, KvTransfer, RoleLayout
from headfirst.decide.model.checkpoint import Checkpoint

# What both sides compare when they meet (metadata.py, compute_nixl_compatibility_hash).
_ALIKE = {
    "dtype": "--dtype",
    "kv_cache_dtype": "--kv-cache-dtype",
    "attention_backend": "--attention-backend",
    "speculative_config": "--speculative-config",
    "hf_overrides": "--hf-overrides",
}


KV_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}


def _problems(checkpoint: Checkpoint, prefill: RoleLayout, decode: RoleLayout) -> Iterator[str]:
    for name, flag in _ALIKE.items():
        if prefill.values.get(name) != decode.values.get(name):
            yield f"{flag} differs between prefill and decode"
    if any("kv_transfer_config" in side.values for side in (prefill, decode)):
        yield "--kv-transfer-config follows from kv_transfer"
    if any(side.values.get("enable_return_routed_experts") for side in (prefill, decode)):
        yield "--enable-return-routed-experts excludes it"
    ours, theirs = prefill.layout.tensor, decode.layout.tensor
    if max(ours, theirs) % min(ours, theirs):
        yield f"prefill has TP {ours} and decode TP {theirs}: neither is a multiple of the other"
    # base_worker.py: ranks that share a KV head would each send it.
    heads = checkpoint.kv_heads
    if checkpoint.mla is None and ours > max(theirs, heads):
        yield f"prefill has TP {ours}, more ranks than {heads} KV heads, and decode only TP {theirs}"
    if prefill.values.get("block_size") != decode.values.get("block_size") and ours > theirs:
        yield "--block-size differs between prefill and decode, and prefill has more tensor ranks"
    if decode.layout.pipeline > 1:
        yield f"decode has {decode.layout.pipeline} pipeline stages, and only prefill may have several"


def _worker(transfer: KvTransfer) -> Mapping[str, Any]:
    return {"worker_type": transfer.role, "kv_connector": "NixlConnector", "kv_role": KV_ROLES[transfer.role]}


DISAGGREGATION = Disaggregation(carriers=("nixl",), problems=_problems, worker=_worker)
