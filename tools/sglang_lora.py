#!/usr/bin/env python3
"""Record what SGLang's own memory pool allocates for LoRA adapters, for the tests of engines/sglang.

Run it as tools/sglang_weights.py: … python tools/sglang_lora.py tests/unit/data

The model is built on torch's meta device, and LoRAMemoryPool makes its buffers there.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import sglang
import torch
from model_folder import model_folder, write_record
from sglang.srt.lora.mem_pool import LoRAMemoryPool
from sglang.srt.lora.utils import auto_detect_lora_target_modules, get_normalized_target_modules
from sglang_memory import CONFIGS, gpu
from sglang_weights import built, refused, without_kernels

RANK, SLOTS = 32, 8
GPU = "H200"
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
LATENT = ["kv_a_proj_with_mqa", "kv_b_proj", "o_proj"]
FEED_FORWARD = ["gate_proj", "up_proj", "down_proj"]
ENDS = ["embed_tokens", "lm_head"]
LAYOUTS: list[dict[str, Any]] = [
    {"tp_size": 1},
    {"tp_size": 4},
    {"tp_size": 8},
    {"tp_size": 8, "ep_size": 8},
    {"tp_size": 8, "attn_dp_size": 8},
]
# Whatever SGLang, torch and transformers raise of a model that SGLang has no shapes for.
REFUSALS = (AssertionError, AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError)


def buffers(model: torch.nn.Module, config: Any, targets: list[str]) -> dict[str, Any]:
    """Bytes of all buffers on rank 0, and by name of the module."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    with torch.device("meta"):
        pool = LoRAMemoryPool(
            base_hf_config=text,
            max_loras_per_batch=SLOTS,
            dtype=torch.bfloat16,
            max_lora_rank=RANK,
            target_modules=get_normalized_target_modules(targets),
            base_model=model,
            eviction_policy="lru",
            lora_added_tokens_size=0,
        )
    sizes: Counter[str] = Counter()
    for layers in (pool.A_buffer, pool.B_buffer):
        for name, tensors in layers.items():
            sizes[name] += sum(tensor.nbytes for tensor in tensors)
    for ends in (
        pool.embedding_A_buffer,
        pool.embedding_B_buffer,
        pool.lm_head_A_buffer,
        pool.lm_head_B_buffer,
    ):
        for name, tensor in ends.items():
            sizes[name] += tensor.nbytes
    return {"bytes": sum(sizes.values()), "modules": dict(sorted(sizes.items()))}


def rows(path: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """What is allocated for each list of target modules, or why SGLang refuses."""
    results: list[dict[str, Any]] = []
    with built(path, arguments) as model:
        config: Any = model.config
        detected, attention = auto_detect_lora_target_modules(model), ATTENTION
        if "fused_qkv_a_proj_with_mqa" in detected:
            attention = [*(("q_a_proj", "q_b_proj") if "q_b_proj" in detected else ("q_proj",)), *LATENT]
        for targets in (attention, attention + FEED_FORWARD, attention + FEED_FORWARD + ENDS):
            try:
                result = buffers(model, config, targets)
            except REFUSALS:  # its text depends on the order of a set
                result = {"refused": "no sizes for one of the modules"}
            results.append({"targets": targets} | result)
    return results


def main() -> int:
    """Write sglang-<version>-lora.json into the folder named on the command line."""
    without_kernels()
    models: dict[str, list[Any]] = {}
    for file in sorted(CONFIGS.glob("*.json")):
        table = models.setdefault(file.stem, [])
        with model_folder(json.loads(file.read_text(encoding="utf-8"))) as path, gpu(GPU):
            for arguments in LAYOUTS:
                try:
                    results = rows(path, arguments)
                except REFUSALS as refusal:
                    results = [refused(refusal)]
                table += [{"arguments": arguments} | row for row in results]
        print(file.stem, sum("refused" in row for row in table), "refused of", len(table), flush=True)
    source = f"SGLang {sglang.__version__}'s LoRAMemoryPool, by tools/sglang_lora.py"
    target = Path(sys.argv[1]) / f"sglang-{sglang.__version__}-lora.json"
    write_record(target, {"source": source, "rank": RANK, "slots": SLOTS}, models)
    return 0


if __name__ == "__main__":
    sys.exit(main())
