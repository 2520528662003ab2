#!/usr/bin/env python3
"""Record what vLLM's own LoRA manager allocates for adapters, for the tests of engines/vllm.

    python tools/vllm_lora.py tests/unit/data/model-configs tests/unit/data [NAME...]

It makes each model on the meta device (tools/vllm_without_gpu.py) and wraps its layers as a start with
--enable-lora does. The environment is that of tools/vllm_kv.py. Each model has its own process.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from model_folder import model_folder

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
    """Write vllm-<version>-lora.json; with --one, print one model's rows."""
    if sys.argv[1] == "--one":
        return one(Path(sys.argv[2]))
    folder, target = Path(sys.argv[1]), Path(sys.argv[2])
    version = importlib.metadata.version("vllm")
    path = target / f"vllm-{version}-lora.json"
    names = sys.argv[3:]
    # With names, the others' records stay.
    models: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["models"] if names else {}
    for name in names or sorted(file.stem for file in folder.glob("*.json")):
        done = subprocess.run(
            [sys.executable, __file__, "--one", str(folder / f"{name}.json")],
            capture_output=True,
            text=True,
            check=False,
        )
        failure = done.stderr.strip().splitlines()[-1:]
        models[name] = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else failure
        print(name, len(models[name]), failure if done.returncode else "", flush=True)
    rows = {name: ",\n".join(map(json.dumps, rows)) for name, rows in sorted(models.items())}
    listed = ",\n".join(f"{json.dumps(name)}: [\n{lines}\n]" for name, lines in rows.items())
    source = json.dumps(f"vLLM {version}'s LoRA manager and layers, by tools/vllm_lora.py")
    text = f'{{\n"source": {source},\n"rank": {RANK},\n"models": {{\n{listed}\n}}\n}}\n'
    path.write_text(text, encoding="utf-8")
    return 0


def one(path: Path) -> int:
    """Print the rows of one model as JSON: its bytes, or why vLLM refuses."""
    from vllm_kv import GPUS
    from vllm_without_gpu import stand_in

    stand_in(*GPUS[GPU])
    rows: list[dict[str, Any]] = []
    with model_folder(json.loads(path.read_text(encoding="utf-8"))) as model:
        for tensor, arguments in RUNS:
            try:
                result = allocated(model, tensor, arguments)
            except (AssertionError, AttributeError, NotImplementedError, RuntimeError, ValueError) as error:
                result = {"refused": f"{type(error).__name__}: {error}".partition("\n")[0][:200]}
            rows.append({"tensor": tensor, "arguments": arguments} | result)
    print(json.dumps(rows))
    return 0


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
    from vllm_without_gpu import META, OnMeta

    given = {"enable_lora": True, "max_lora_rank": RANK, **arguments}
    config = engine_config(model, tensor, given)
    with set_current_vllm_config(config):
        ranks(tensor)
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
