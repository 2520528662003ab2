#!/usr/bin/env python3
"""Record what vLLM's own functions compute of KV cache, batches and layouts, for the tests of engines/vllm.

Run it as tools/vllm_arguments.py, with the folder of the record: … tools/vllm_memory.py tests/unit/data
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import vllm
from model_folder import model_folder
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.usage.usage_lib import UsageContext
from vllm.v1.core import kv_cache_planning
from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec

CATALOGUE = Path(__file__).parents[1] / "py/headfirst/decide/model/catalogue"
# Of each kind of model one or two; their config.json in the catalogue is enough for transformers.
MODELS = (
    "deepseek-ai/DeepSeek-R1",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
    "meta-llama/Llama-3.1-405B",
    "Qwen/Qwen3-0.6B",
)
MODEL_TYPES = {
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
SIZES = range(1, 65)
BLOCK = 16
GIB = 1 << 30
AVAILABLE = 40 * GIB
CACHES = [(1, 1, "auto"), (4, 1, "auto"), (8, 2, "auto"), (16, 1, "auto"), (8, 1, "fp8")]
GPUS = {"T4": 15, "A100-40G": 39, "A100-80G": 79, "H100-80G": 79, "H200-141G": 139, "B200": 178}


def served(config: dict[str, Any]) -> dict[str, Any]:
    """What config.json has of it: the engine's own classes, nothing quantised."""
    whole = {key: value for key, value in config.items() if key not in ("auto_map", "quantization_config")}
    return whole | {"model_type": MODEL_TYPES[config["architectures"][0]], "torch_dtype": "bfloat16"}


def layouts(path: str) -> list[int]:
    """The tensor parallel sizes that vLLM's configuration accepts."""
    accepted = []
    for tensor in SIZES:
        try:
            engine_config(path, tensor, 1)
        except (ValueError, AssertionError):
            continue
        accepted.append(tensor)
    return accepted


def engine_config(path: str, tensor: int, pipeline: int) -> Any:
    """vLLM's whole configuration."""
    return EngineArgs(
        model=path, tensor_parallel_size=tensor, pipeline_parallel_size=pipeline, enforce_eager=True
    ).create_engine_config()


def cache(config: Any, kind: str) -> dict[str, int]:
    """Bytes of one token and tokens in AVAILABLE bytes, on one rank."""
    model, parallel = config.model_config, config.parallel_config
    spec_class = MLAAttentionSpec if model.use_mla else FullAttentionSpec
    spec = spec_class(
        block_size=BLOCK,
        num_kv_heads=model.get_num_kv_heads(parallel),
        head_size=model.get_head_size(),
        dtype=torch.uint8 if kind == "fp8" else torch.bfloat16,
    )
    specs = {f"layers.{layer}": spec for layer in range(model.get_num_layers(parallel))}
    groups = kv_cache_planning.get_kv_cache_groups(config, dict(specs))
    config.cache_config.kv_cache_layout = "LBNHC"  # as FlashAttention's; a worker chooses it otherwise
    planned = kv_cache_planning.get_kv_cache_config_from_groups(config, groups, AVAILABLE)
    needed = kv_cache_planning.max_memory_usage_bytes(config, specs.values())
    return {
        "bytes_per_token": spec.page_size_bytes // BLOCK * len(specs),
        "tokens": planned.num_blocks * BLOCK,
        "bytes_of_longest_request": needed,
        "longest_request": model.max_model_len,
    }


def batches(name: str, gib: int) -> dict[str, int]:
    """The defaults of a server on a GPU."""
    with (
        patch.object(type(current_platform), "is_cpu", lambda self: False),
        patch.object(type(current_platform), "get_device_total_memory", lambda *a, **k: gib * GIB),
        patch.object(type(current_platform), "get_device_name", lambda *a, **k: f"NVIDIA {name}"),
        patch.object(type(current_platform), "is_device_capability", lambda *a, **k: False),
    ):
        tokens, requests = EngineArgs.get_batch_defaults(1)
    return {
        "tokens": tokens[UsageContext.OPENAI_API_SERVER],
        "requests": requests[UsageContext.OPENAI_API_SERVER],
    }


def window(size: int, in_flight: int, longest: int) -> dict[str, int]:
    """Blocks that one request keeps in a layer with a window."""
    spec = SlidingWindowSpec(
        block_size=BLOCK, num_kv_heads=1, head_size=128, dtype=torch.bfloat16, sliding_window=size
    )
    blocks = spec.max_admission_blocks_per_request(max_in_flight_tokens=in_flight, max_model_len=longest)
    return {"window": size, "in_flight": in_flight, "longest_request": longest, "blocks": blocks}


def main() -> int:
    """Write vllm-<version>-memory.json into the folder named on the command line."""
    version = vllm.__version__.partition("+")[0]
    record: dict[str, Any] = {
        "source": f"vLLM {version}, by tools/vllm_memory.py",
        "available": AVAILABLE,
        "models": {},
        "windows": [window(128, 4096, 131072), window(1024, 16384, 131072), window(4096, 16384, 8192)],
        "batches": {name: batches(name, gib) | {"gib": gib} for name, gib in GPUS.items()},
    }
    entries = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(CATALOGUE.glob("*.json"))]
    for id, entry in ((id, entry) for part in entries for id, entry in part.items() if id in MODELS):
        with model_folder({"config": served(entry["config"])}) as path:
            sizes = layouts(path)
            caches = [
                {"tensor": tensor, "pipeline": pipeline, "kind": kind}
                | cache(engine_config(path, tensor, pipeline), kind)
                for tensor, pipeline, kind in CACHES
                if tensor in sizes
            ]
        record["models"][id] = {"tensor_sizes": sizes, "caches": caches}
        print(id, sizes)
    target = Path(sys.argv[1]) / f"vllm-{version}-memory.json"
    target.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
