"""Prefill and decode as two kinds of vLLM servers, whose KV cache NIXL carries (0.33.0).

Sources: vllm/distributed/kv_transfer/kv_connector/v1/nixl (metadata.py, base_worker.py), config/vllm.py.
"""

from __future__ import annotations

from collections.abc import Mapping
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


def _problems(checkpoint: Checkpoint, prefill: RoleLayout, decode: RoleLayout) -> list[str]:
    problems = [
        f"{flag} differs between prefill and decode"
        for name, flag in _ALIKE.items()
        if prefill.values.get(name) != decode.values.get(name)
    ]
    if any("kv_transfer_config" in side.values for side in (prefill, decode)):
        problems.append("--kv-transfer-config follows from kv_transfer")
    if any(side.values.get("enable_return_routed_experts") for side in (prefill, decode)):
        problems.append("--enable-return-routed-experts excludes it")
    widths = [side.layout.tensor for side in (prefill, decode)]
    if max(widths) % min(widths):
        problems.append(
            f"prefill has TP {widths[0]} and decode TP {widths[1]}: neither is a multiple of the other"
        )
    # base_worker.py: ranks that share a KV head would each send it.
    if checkpoint.mla is None and widths[0] > max(widths[1], checkpoint.kv_heads):
        problems.append(
            f"prefill has TP {widths[0]}, more ranks than {checkpoint.kv_heads} KV heads, and decode only "
            f"TP {widths[1]}"
        )
    if prefill.values.get("block_size") != decode.values.get("block_size") and widths[0] > widths[1]:
        problems.append("--block-size differs between prefill and decode, and prefill has more tensor ranks")
    if decode.layout.pipeline > 1:
        problems.append(
            f"decode has {decode.layout.pipeline} pipeline stages, and only prefill may have several"
        )
    return problems


def _worker(transfer: KvTransfer) -> Mapping[str, Any]:
    return {"worker_type": transfer.role, "kv_connector": "NixlConnector", "kv_role": KV_ROLES[transfer.role]}


DISAGGREGATION = Disaggregation(carriers=("nixl",), problems=_problems, worker=_worker)
