#!/usr/bin/env python3
"""Write what LMDeploy's own functions give for the KV cache, as a fixture of the memory formula.

Run it with the Python of an environment that has LMDeploy; no GPU is needed:
    python tools/lmdeploy_memory.py tests/unit/data
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdeploy
import torch
from lmdeploy.messages import QuantPolicy
from lmdeploy.pytorch.config import ModelConfig
from lmdeploy.pytorch.engine.cache_engine import schema
from lmdeploy.pytorch.engine.executor.base import ExecutorBase, _WorkerCachePlanSizes

BLOCK = 64
RATIO = 0.8
GIB = 1 << 30
# The back end's shape of a block of the standard cache (pytorch/backends/cuda/attention/default.py).
schema.get_backend = lambda: SimpleNamespace(
    get_k_block_shape=lambda block, heads, size, dtype: (block, heads, size),
    get_v_block_shape=lambda block, heads, size, dtype: (block, heads, size),
)
# model, its KV heads on one rank, key and value width of a head, layers, vocabulary
MODELS = {
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B": (2, 128, 128, 64, 152064),
    "meta-llama/Llama-3.1-405B": (2, 128, 128, 126, 128256),
    "deepseek-ai/DeepSeek-R1": (1, 576, 0, 61, 129280),
}


def block_bytes(heads: int, key: int, value: int, layers: int, policy: QuantPolicy) -> int:
    """Bytes of one block of the KV cache on one rank, from LMDeploy's descriptions of its caches."""
    model = ModelConfig(
        hidden_size=0,
        num_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        bos_token_id=0,
        eos_token_id=[0],
        head_dim=key,
        k_head_dim=key,
        v_head_dim=value,
        dtype=torch.bfloat16,
    )
    cache: Any = SimpleNamespace(kernel_block_size=BLOCK, quant_policy=policy)
    keys, values = schema.build_k_cache_desc(model, cache), schema.build_v_cache_desc(model, cache)
    more = schema.build_quant_cache_descs(keys, values, model, cache)
    return layers * sum(part.size for part in (keys, values, *more))


def blocks(size: int, free: int, batch: int, vocabulary: int) -> int:
    """The blocks that the executor takes of `free` bytes."""
    cache = SimpleNamespace(
        cache_max_entry_count=RATIO, max_prefill_token_num=8192, max_batches=batch, num_gpu_blocks=0
    )
    executor = SimpleNamespace(cache_config=cache, model_config=SimpleNamespace(mla_index_topk=None))
    for name in ("_get_min_num_gpu_blocks", "_get_num_gpu_blocks", "_get_rank_cache_block_sizes"):
        setattr(executor, name, getattr(ExecutorBase, name))
    executor._get_dsa_score_workspace_size = lambda: 0
    plan = [_WorkerCachePlanSizes(target=size)]
    reserved, _ = ExecutorBase._get_runtime_size(executor, [free], plan, vocabulary)
    ExecutorBase._update_num_gpu_blocks(executor, [free - reserved], plan, None)
    return int(cache.num_gpu_blocks)


def main() -> int:
    """Write lmdeploy-VERSION-kv.json into the folder on the command line."""
    rows = []
    for model, (heads, key, value, layers, vocabulary) in MODELS.items():
        for policy in (QuantPolicy.NONE, QuantPolicy.INT8, QuantPolicy.INT4, QuantPolicy.FP8):
            if value == 0 and policy in (QuantPolicy.INT8, QuantPolicy.INT4):
                continue
            size = block_bytes(heads, key, value, layers, policy)
            for free, batch in ((30 * GIB, 384), (80 * GIB, 1024)):
                count = blocks(size, free, batch, vocabulary)
                rows.append(
                    {
                        "model": model,
                        "quant_policy": str(policy.value),
                        "token_bytes": size // BLOCK,
                        "free": free,
                        "batch": batch,
                        "tokens": count * BLOCK,
                    }
                )
    path = Path(sys.argv[1]) / f"lmdeploy-{lmdeploy.__version__}-kv.json"
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
