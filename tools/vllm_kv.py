#!/usr/bin/env python3
"""Record how vLLM's own models and functions divide the KV cache, for the tests of engines/vllm.

Run it as tools/vllm_arguments.py, with the folder of the record: … tools/vllm_kv.py tests/unit/data

It makes each model on the meta device (tools/vllm_without_gpu.py) and reads the cache of each layer. vLLM's
own functions group the layers, count blocks and check what starts.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from model_folder import model_folder, write_record
from vllm_without_gpu import GPUS, META, OnMeta, of_each

AVAILABLE = 40 << 30
SIZES = (1, 4, 8)
MTP = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}}
# On H100s all sizes; what differs by GPU, argument or draft on 8.
VARIANTS: dict[str, dict[str, Any]] = {
    "fp8": {"kv_cache_dtype": "fp8"},
    "no prefix cache": {"enable_prefix_caching": False},
    "mtp": MTP,
}
HYBRID_ONLY = "no prefix cache"


def main() -> int:
    """Write vllm-<version>-kv.json into the folder named on the command line."""
    version = importlib.metadata.version("vllm")
    models: dict[str, list[Any]] = {}
    for gpu in GPUS:
        for name, made in of_each(gpu, rows).items():
            models.setdefault(name, []).extend(made)
            print(name, gpu, len(made), flush=True)
    source = f"vLLM {version}'s model classes and kv_cache_planning.py, by tools/vllm_kv.py"
    path = Path(sys.argv[1]) / f"vllm-{version}-kv.json"
    served = {name: made for name, made in models.items() if made}
    write_record(path, {"source": source, "available": AVAILABLE}, served)
    return 0


def rows(gpu: str, path: Path) -> list[dict[str, Any]]:
    """The rows of one model on one kind of GPU."""
    published = json.loads(path.read_text(encoding="utf-8"))
    always = unnamed(published)
    hopper = gpu.startswith("H100")
    made = []
    with model_folder(published) as model:
        for tensor in SIZES if hopper else (8,):
            made += row(model, gpu, tensor, always)
        for arguments in VARIANTS.values() if made and hopper else ():
            hybrid = made[0]["max_num_seqs"] is not None
            if arguments != always and (hybrid or arguments != VARIANTS[HYBRID_ONLY]):
                made += row(model, gpu, 8, always | arguments)
    return made


def unnamed(published: dict[str, Any]) -> dict[str, Any]:
    """Arguments in place of a hf_quant_config.json that is kept without its "producer".

    vLLM does not take such a file for ModelOpt's (model_arch_config_convertor.py).
    """
    quantized = published.get("hf_quant_config")
    if quantized is None or "producer" in quantized:
        return {}
    return {"kv_cache_dtype": quantized["quantization"]["kv_cache_quant_algo"].lower()}


def row(model: str, gpu: str, tensor: int, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """One record; none where vLLM refuses the layout or the argument."""
    try:
        config = engine_config(model, tensor, arguments)
        specs = layers(config)
    except (ArithmeticError, AssertionError, NotImplementedError, ValueError, RuntimeError) as error:
        print(gpu, tensor, arguments, type(error).__name__, str(error)[:300], file=sys.stderr)
        return []
    return [{"gpu": gpu, "tensor": tensor, "arguments": arguments} | planned(config, specs)]


def engine_config(model: str, tensor: int, arguments: dict[str, Any]) -> Any:
    """vLLM's whole configuration, as a server has it."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    return EngineArgs(
        model=model,
        skip_tokenizer_init=True,
        language_model_only=True,
        tensor_parallel_size=tensor,
        load_format="dummy",
        **arguments,
    ).create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)


def layers(config: Any) -> dict[str, Any]:
    """Each layer's cache on one rank, by the model's own classes; the layout and block size are set."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.config.vllm import get_layers_from_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.platforms import current_platform
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts, resolve_kv_cache_layout
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec

    with set_current_vllm_config(config):
        ranks(config.parallel_config)
        with torch.device(META), OnMeta(), set_default_torch_dtype(config.model_config.dtype):
            initialize_model(config)
            if draft := config.speculative_config:
                drafted = draft.apply_draft_overrides(config)
                initialize_model(drafted, model_config=draft.draft_model_config)
        current_platform.update_block_size_for_backend(config)
        specs: dict[str, Any] = get_kv_cache_spec(config)
        modules = get_layers_from_vllm_config(config, AttentionLayerBase).values()
        backends = {module.get_attn_backend() for module in modules}
        for backend in backends:
            # DeepSeek-V4 and MiniMax-M3 name their backends without this check.
            if not backend.supports_compute_capability(current_platform.get_device_capability()):
                raise ValueError(f"{backend.get_name()} does not support this GPU.")
        layouts = get_supported_kv_cache_layouts(backends)
        resolve_kv_cache_layout(config, [[layout.name for layout in layouts]], specs.values())
    return specs


def ranks(parallel: Any) -> None:
    """The groups of rank 0 in a stage that has all layers."""
    import torch.distributed
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state

    if not torch.distributed.is_initialized():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        with set_current_vllm_config(VllmConfig()):  # of no model, as a dense one has no group of experts
            parallel_state.init_distributed_environment(1, 0, "env://", 0, "gloo")
            parallel_state.ensure_model_parallel_initialized(1, 1, backend="gloo")
    tensor, data = parallel.tensor_parallel_size, parallel.data_parallel_size
    parallel_state.get_tp_group().world_size = tensor
    parallel_state.get_dp_group().world_size = data
    parallel_state.get_ep_group().world_size = tensor * data


def planned(config: Any, specs: dict[str, Any]) -> dict[str, Any]:
    """Groups, blocks and what starts with AVAILABLE bytes."""
    from vllm.v1.core import kv_cache_planning as planning
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.core.kv_cache_config_builder import get_kv_cache_config_builder

    model = config.model_config
    longest = model.max_model_len
    groups = planning.get_global_kv_cache_groups(config, [specs])
    builder = get_kv_cache_config_builder(config)
    block = planning._pool_bytes_per_block_from_builder(builder, config, groups)
    starts = planning._estimate_max_model_len_from_groups(builder, config, groups, AVAILABLE - block)
    model.max_model_len = starts
    (cache,) = planning.get_kv_cache_configs(config, [specs], [AVAILABLE], groups)
    tokens, concurrency = kv_cache_utils.get_kv_cache_capacity(config, cache)
    needs = [
        -(-group.kv_cache_spec.max_memory_usage_bytes(config) // group.kv_cache_spec.page_size_bytes)
        for group in groups
    ]
    return {
        "by": "model class",
        "kv_cache_dtype": config.cache_config.cache_dtype,
        "in_flight": config.max_in_flight_tokens,
        "layers": kinds(specs),
        "groups": [
            [len(group.layer_names), group.kv_cache_spec.block_size, need]
            for group, need in zip(groups, needs, strict=True)
        ],
        "block_bytes": block,
        "blocks": cache.num_blocks,
        "max_model_len": longest,
        "longest_that_starts": starts,
        "tokens": tokens,
        "max_concurrency": round(concurrency, 3),
        "max_num_seqs": most_requests(config, cache),
    }


def kinds(specs: dict[str, Any]) -> list[dict[str, Any]]:
    """Layers of each kind, bytes of a page, and the tokens of a block."""
    return [
        {
            "kind": type(spec).__name__.removesuffix("Spec"),
            "layers": count,
            "block_size": spec.block_size,
            "page_bytes": spec.page_size_bytes,
        }
        for spec, count in Counter(specs.values()).items()
    ]


def most_requests(config: Any, cache: Any) -> int | None:
    """The largest --max-num-seqs with CUDA graphs of this cache; None: it is not bounded."""
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.attention.backend import AttentionCGSupport

    compilation = config.compilation_config
    compilation.cudagraph_mode = CUDAGraphMode.FULL_AND_PIECEWISE

    def starts(requests: int) -> bool:
        try:
            compilation.resolve_cudagraph_mode_and_sizes(
                AttentionCGSupport.ALWAYS,
                None,
                1,
                use_v2_model_runner=True,
                kv_cache_config=cache,
                max_num_reqs=requests,
            )
        except ValueError:
            return False
        return True

    if starts(1 << 40):
        return None
    low, high = 0, 1 << 40
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if starts(middle) else (low, middle)
    return low


if __name__ == "__main__":
    sys.exit(main())
