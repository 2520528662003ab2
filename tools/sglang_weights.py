#!/usr/bin/env python3
"""Record the weights that SGLang's own model classes keep on one rank, for the tests of engines/sglang.

Run it as tools/sglang_memory.py: … python tools/sglang_weights.py tests/unit/data

Each model is built on torch's meta device, with the configs of tests/unit/data/model-configs, a GPU's facts
and rank 0 of groups of the right size; so SGLang divides, copies and refuses as it does before it loads a
checkpoint. Kernels' packages are replaced by empty ones. What the loading adds is not here: MLA's w_kc and
w_vc (as many elements as kv_b_proj), repacked or padded experts, and scales that a backend creates as float32
and keeps as bytes (MXFP4 experts on SM100: a fifth of their size).
"""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import sglang
import torch
from model_configs import SHORTENED
from model_folder import model_folder, write_record
from sglang.srt.arg_groups.overrides import model_config_of
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.layers import deep_gemm_wrapper
from sglang.srt.layers.dp_attention import initialize_dp_attention_flags
from sglang.srt.layers.moe import initialize_moe_config
from sglang.srt.layers.moe.fused_moe_triton import layer as moe_layer
from sglang.srt.layers.quantization.fp4_utils import initialize_fp4_gemm_config
from sglang.srt.layers.quantization.fp8_utils import initialize_fp8_gemm_config
from sglang.srt.model_loader.loader import _get_quantization_config, _initialize_model
from sglang.srt.models import registry
from sglang.srt.runtime_context import SpawnRanks, create_context, get_parallel, use_context
from sglang.srt.server_args import ServerArgs
from sglang_memory import CONFIGS, gpu
from stand_ins import StandIns
from torch.overrides import TorchFunctionMode

# Top packages of kernels: whatever is imported from them is a stand-in that nothing calls.
KERNELS = {
    "cuda",
    "cutlass",
    "deep_ep",
    "deep_gemm",
    "flash_attn",
    "flash_mla",
    "flashinfer",
    "sgl_kernel",
    "vllm",
}
# Modules that kept the answer to "is this CUDA?" when they were imported.
WITH_ANSWERS = ("sglang.srt.models.", "sglang.srt.layers.")
DP8: dict[str, Any] = {"tp_size": 8, "attn_dp_size": 8}
RUNS: list[tuple[str, dict[str, Any]]] = [
    ("H200", {"tp_size": 1}),
    ("H200", {"tp_size": 4}),
    ("H200", {"tp_size": 8}),
    ("H200", {"tp_size": 8, "ep_size": 2}),
    ("H200", {"tp_size": 8, "ep_size": 8}),
    ("H200", {"tp_size": 8, "moe_a2a_backend": "deepep"}),
    ("H200", {"tp_size": 16}),
    ("H200", {"tp_size": 8, "attn_dp_size": 2}),
    ("H200", DP8),
    ("H200", DP8 | {"ep_size": 8}),
    ("H200", DP8 | {"moe_a2a_backend": "deepep"}),
    ("H200", DP8 | {"moe_a2a_backend": "deepep", "moe_dense_tp_size": 1, "enable_dp_lm_head": True}),
    ("B200", {"tp_size": 8}),
    ("B200", DP8),
]
# The first that a parameter's name contains decides its part.
PARTS = {
    "vision": ("visual.", "vision", "mm_projector", "multi_modal_projector"),
    "embedding": ("embed_tokens", "embeddings.", "embed_tokens_per_layer"),
    "head": ("lm_head",),
    "shared_experts": ("shared_expert", "share_expert"),
    "experts": (".experts.",),
    "router": (".gate.weight", ".gate.e_score", ".router.", "topk"),
    "attention": (
        ".self_attn.",
        ".attn.",
        ".linear_attn.",
        "qkv_proj",
        "o_proj",
        "in_proj",
        "out_proj",
        "conv1d",
    ),
    "dense": (".mlp.", ".feed_forward.", "up_proj", "down_proj"),
}


class _Empty(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


class _Device(int):
    """A device's number, and its properties."""

    multi_processor_count = 132


class _OnMeta(TorchFunctionMode):
    """What a model puts on the GPU by name stays on the meta device."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "meta"
        if function is torch.Tensor.cuda:
            return args[0]
        return function(*args, **kwargs)


def built(path: str, arguments: dict[str, Any]) -> AbstractContextManager[torch.nn.Module]:
    """`model` with these arguments."""
    return model(ServerArgs(model_path=path, device="cuda", skip_tokenizer_init=True, **arguments))


@contextmanager
def model(args: ServerArgs) -> Iterator[torch.nn.Module]:
    """The model as rank 0 builds it, on the meta device, and its groups of ranks while the context lasts.

    All layers are built: there is one pipeline stage.
    """
    args.resolve_once()
    config = model_config_of(args)
    context = create_context(args, role="scheduler", ranks=SpawnRanks(world_rank=0, gpu_id=0, dp_rank=None))
    with ExitStack() as stack:
        stack.enter_context(use_context(context))
        parallel = get_parallel()
        groups: dict[int, MagicMock] = {}

        def group(size: int) -> MagicMock:
            """One object for groups of one size: SGLang asks whether two groups are the same."""
            facts = {"world_size": size, "rank_in_group": 0, "is_first_rank": True, "is_last_rank": True}
            return groups.setdefault(size, MagicMock(ranks=list(range(size)), **facts))

        stack.enter_context(
            parallel.override(
                world_group=group(parallel.tp_size),
                pp_group=group(1),
                tp_group=group(parallel.tp_size),
                attn_tp_group=group(parallel.attn_tp_size),
                attn_cp_group=group(parallel.attn_cp_size),
                moe_tp_group=group(parallel.moe_tp_size),
                moe_ep_group=group(parallel.moe_ep_size),
                moe_dp_group=group(parallel.moe_dp_size),
            )
        )
        initialize_dp_attention_flags(args)
        initialize_moe_config()
        initialize_fp8_gemm_config()
        initialize_fp4_gemm_config()
        for name in ("Stream", "Event", "get_device_properties", "current_device"):
            stack.enter_context(patch.object(torch.cuda, name, MagicMock(return_value=_Device(0))))
        stack.enter_context(patch.object(deep_gemm_wrapper, "ENABLE_JIT_DEEPGEMM", True))
        stack.enter_context(
            patch.object(moe_layer, "create_moe_dispatcher", lambda *_, **__: SimpleNamespace())
        )
        for module in [m for n, m in sys.modules.items() if n.startswith(WITH_ANSWERS)]:
            if "_is_cuda" in vars(module):
                stack.enter_context(patch.object(module, "_is_cuda", True))
            if "get_rope" in vars(module):
                stack.enter_context(patch.object(module, "get_rope", MagicMock()))
        quantization = _get_quantization_config(config, LoadConfig())
        before = torch.get_default_dtype()
        torch.set_default_dtype(config.dtype)
        stack.callback(torch.set_default_dtype, before)
        with _OnMeta(), torch.device("meta"):
            yield _initialize_model(config, LoadConfig(), quantization)


def part_of(name: str) -> str:
    """The part of a model that a parameter belongs to."""
    for part, marks in PARTS.items():
        if any(mark in name for mark in marks):
            return part
    return "other"


def weights(path: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Bytes of each part on rank 0, or SGLang's reason to refuse."""
    parts: Counter[str] = Counter()
    try:
        with built(path, arguments) as made:
            for name, parameter in made.named_parameters():
                parts[part_of(name)] += parameter.numel() * parameter.element_size()
    except (AssertionError, NotImplementedError, ValueError) as refusal:
        return refused(refusal)
    return {"total": sum(parts.values()), "parts": dict(sorted(parts.items()))}


def refused(refusal: Exception) -> dict[str, str]:
    """SGLang's reason, in one line."""
    return {"refused": str(refusal).strip().partition("\n")[0] or type(refusal).__name__}


def without_kernels() -> None:
    """Import the models' classes, and let stand-ins take the place of the kernels' packages."""
    logging.disable(logging.CRITICAL)
    registry.import_model_classes("sglang.srt.models")
    for name in [name for name in sys.modules if name.partition(".")[0] in KERNELS]:
        del sys.modules[name]
    sys.meta_path.insert(0, StandIns(KERNELS, _Empty))


def main() -> int:
    """Write sglang-<version>-weights.json into the folder named on the command line."""
    without_kernels()
    models = {}
    for path in sorted(CONFIGS.glob("*.json")):
        rows, config = [], json.loads(path.read_text(encoding="utf-8"))
        if SHORTENED in config["config"].get("quantization_config", {}):
            continue  # which modules are quantised is not known
        with model_folder(config) as folder:
            for name, arguments in RUNS:
                with gpu(name):
                    result = weights(folder, arguments)
                rows.append({"gpu": name, "arguments": arguments} | result)
        models[path.stem] = rows
        print(path.stem, sum("refused" in row for row in rows), "refused of", len(rows), flush=True)
    target = Path(sys.argv[1]) / f"sglang-{sglang.__version__}-weights.json"
    write_record(target, {"source": f"SGLang {sglang.__version__}, by tools/sglang_weights.py"}, models)
    return 0


if __name__ == "__main__":
    sys.exit(main())
