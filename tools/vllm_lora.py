#!/usr/bin/env python3
"""Record what vLLM's own LoRA manager allocates for adapters, for the tests of engines/vllm.

Run it as tools/vllm_arguments.py, with the folder of the record: … tools/vllm_lora.py tests/unit/data

It makes each model on the meta device (tools/vllm_without_gpu.py) and wraps its layers as a start with
--enable-lora does.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from model_folder import model_folder, write_record
from vllm_without_gpu import META, OnMeta, of_each

GPU = "H100-80G"
RANK = 32
# (ranks of a stage, arguments)
RUNS: tuple[tuple[int, dict[str, Any]], ...] = (
    (1, {}),
    (4, {}),
    (8, {}),
    (8, {"max_loras": 4}),
    (8, {"fully_sharded_loras": True}),
    (8, {"enable_expert_parallel": True}),
    (8, {"lora_target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}),
)


def main() -> int:
    """Write vllm-<version>-lora.json into the folder named on the command line."""
    version = importlib.metadata.version("vllm")
    source = f"vLLM {version}'s LoRA manager and layers, by tools/vllm_lora.py"
    path = Path(sys.argv[1]) / f"vllm-{version}-lora.json"
    write_record(path, {"source": source, "rank": RANK}, of_each(GPU, rows))
    return 0


def rows(_gpu: str, path: Path) -> list[dict[str, Any]]:
    """The rows of one model: its bytes, or why vLLM refuses."""
    made: list[dict[str, Any]] = []
    with model_folder(json.loads(path.read_text(encoding="utf-8"))) as model:
        for tensor, arguments in RUNS:
            try:
                result = allocated(model, tensor, arguments)
            except (AssertionError, AttributeError, NotImplementedError, RuntimeError, ValueError) as error:
                result = {"refused": f"{type(error).__name__}: {error}".partition("\n")[0][:200]}
            made.append({"tensor": tensor, "arguments": arguments} | result)
    print(path.stem, sum("refused" in row for row in made), "refused of", len(made), flush=True)
    return made


def without_kernels() -> None:
    """Kernels of experts are made when weights are loaded; a stand-in takes their place."""
    from vllm.lora.layers import fused_moe
    from vllm.model_executor.layers.fused_moe import MoERunner, RoutedExperts
    from vllm.model_executor.layers.fused_moe.experts.lora_experts_mixin import LoRAExpertsMixin
    from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase

    kernel = MagicMock()
    kernel.impl = MagicMock(spec=fused_moe.FusedMoEKernelModularImpl)
    kernel.fused_experts = MagicMock(spec=LoRAExpertsMixin)
    runner: Any = MoERunner
    experts: Any = RoutedExperts
    method: Any = FusedMoEMethodBase
    module: Any = fused_moe
    module.FusedMoEModularMethod = MagicMock()
    runner._replace_quant_method = lambda *_: None
    experts._ensure_moe_quant_config_init = lambda *_: None
    for subclass in (method, *descendants(method)):
        subclass.supports_internal_mk = True
        subclass.is_monolithic = False
        subclass.moe_kernel = property(lambda _: kernel, lambda *_: None)


def descendants(kind: type) -> Iterator[type]:
    """All classes that are derived from `kind`."""
    for subclass in kind.__subclasses__():
        yield subclass
        yield from descendants(subclass)


def allocated(model: str, tensor: int, arguments: dict[str, Any]) -> dict[str, Any]:
    """Bytes of all adapter buffers on one rank, and by name of the layer."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.lora.layers import BaseLayerWithLoRA
    from vllm.lora.model_manager import create_lora_manager
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm_kv import engine_config, ranks

    given = {"enable_lora": True, "max_lora_rank": RANK, **arguments}
    config = engine_config(model, tensor, given)
    with set_current_vllm_config(config):
        ranks(config.parallel_config)
        without_kernels()
        with torch.device(META), OnMeta(), set_default_torch_dtype(config.model_config.dtype):
            made = initialize_model(config)
            created = create_lora_manager(
                made,
                max_num_seqs=8,
                max_num_batched_tokens=64,
                vocab_size=config.model_config.get_vocab_size(),
                lora_config=config.lora_config,
                device=META,
                vllm_config=config,
            )
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    for name, module in created.model.named_modules():
        if not isinstance(module, BaseLayerWithLoRA):
            continue
        for key, value in vars(module).items():
            if "lora_" not in key or not key.endswith("_stacked"):
                continue
            for buffer in value if isinstance(value, (tuple, list)) else (value,):
                # A buffer's own memory: MoE layers list views of it too.
                if id(buffer) not in seen and buffer._base is None:
                    seen.add(id(buffer))
                    sizes[name.rpartition(".")[2]] += buffer.nbytes
    return {"bytes": sum(sizes.values()), "layers": dict(sorted(sizes.items()))}


if __name__ == "__main__":
    sys.exit(main())
