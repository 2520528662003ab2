"""Prefill and decode as two kinds of SGLang servers (0.5.23, srt/disaggregation)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headfirst.decide.engines.base import Disaggregation, KvTransfer, RoleLayout
from headfirst.decide.model.checkpoint import Checkpoint

# What both sides must have alike (common/conn.py, ensure_parallel_info).
_ALIKE = {"page_size": "--page-size", "kv_cache_dtype": "--kv-cache-dtype"}
# Neither its main cache nor its index can be divided in another way (the same place).
_EQUAL_WIDTHS = frozenset({"MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"})


def _problems(checkpoint: Checkpoint, prefill: RoleLayout, decode: RoleLayout) -> Iterator[str]:
    for name, flag in _ALIKE.items():
        if prefill.values.get(name) != decode.values.get(name):
            ours, theirs = (side.values.get(name, "left out") for side in (prefill, decode))
            yield f"{flag} is {ours} for prefill and {theirs} for decode"
    widths = [side.layout.tensor // side.layout.attention_data for side in (prefill, decode)]
    if max(widths) % min(widths):
        yield (
            f"attention is divided among {widths[0]} ranks for prefill and among {widths[1]} for decode, and "
            "neither is a multiple of the other"
        )
    if checkpoint.architecture in _EQUAL_WIDTHS and widths[0] != widths[1]:
        yield f"attention of {checkpoint.architecture} must be divided among as many ranks on both sides"
    # _resolve_rank_mapping.
    ours, theirs = prefill.layout.pipeline, decode.layout.pipeline
    if theirs not in (1, ours):
        yield f"decode has {theirs} pipeline stages and prefill {ours}: decode needs as many, or one"


def _worker(transfer: KvTransfer) -> Mapping[str, Any]:
    port = {"bootstrap_port": transfer.port} if transfer.role == "prefill" else {}
    return {"worker_type": transfer.role, **port}


DISAGGREGATION = Disaggregation(
    carriers=("mooncake", "nixl"),
    problems=_problems,
    worker=_worker,
    # The address at which SGLang asks nobody for a KV cache (disaggregation/utils.py, FAKE_BOOTSTRAP_HOST).
    side="disaggregation_mode",
    probe_body={"bootstrap_host": "2.2.2.2", "bootstrap_room": 0},
)
