#!/usr/bin/env python3
"""Record how SGLang's own functions divide a GPU's memory, for the tests of engines/sglang.

Run it with the Python of an environment that has SGLang, torch for CPUs and the shims of
py/headfirst/decide/engines/sglang/cpu; no GPU is needed:
    python tools/sglang_memory.py tests/unit/data

A GPU's facts (memory, compute capability, "CUDA is available") are given to SGLang; everything else is its
own: ServerArgs.resolve_once chooses the arguments, KVCacheConfigurator divides what the weights leave.
What a loaded model would tell is taken from its config: the layers of a pipeline stage by SGLang's
get_pp_indices, the window from the config. The list of quantisations is completed by hand with the one that
SGLang offers with CUDA only (mxfp4). A layout is recorded where the arguments accept it; whether the model's
class can be divided so is not known here.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

os.environ["HF_HUB_OFFLINE"] = "1"

import sglang
import torch
from model_folder import model_folder
from sglang.srt import arg_groups
from sglang.srt.arg_groups.overrides import model_config_of, resolving_view
from sglang.srt.configs.load_config import LoadConfig
from sglang.srt.configs.model_config import AttentionArch
from sglang.srt.distributed.utils import get_pp_indices
from sglang.srt.layers import quantization
from sglang.srt.layers.quantization.mxfp4 import Mxfp4Config
from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator
from sglang.srt.mem_cache.kv_cache_dtype import configure_kv_cache_dtype
from sglang.srt.model_executor.model_runner_components.layer_setup import resolve_layer_indices
from sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state import (
    resolve_spec_aux_hidden_state_config,
)
from sglang.srt.model_executor.pool_configurator import create_memory_pool_configurator
from sglang.srt.model_loader.weight_utils import get_quant_config
from sglang.srt.runtime_context import (
    create_context,
    get_model,
    get_parallel,
    get_schedule,
    override_platform,
    use_context,
)
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

# Before CUDA is said to be available, all that a function would import with CUDA's kernels.
for name in [
    *(module.name for module in pkgutil.walk_packages(arg_groups.__path__, f"{arg_groups.__name__}.")),
    "sglang.srt.speculative.dspark_components.dspark_config",
]:
    importlib.import_module(name)
for table in (quantization.BASE_QUANTIZATION_METHODS, quantization.QUANTIZATION_METHODS):
    table.setdefault("mxfp4", Mxfp4Config)

CONFIGS = Path(__file__).parents[1] / "tests/unit/data/model-configs"
GIB = 1 << 30
REST = 40  # GiB that the weights and the reserve leave
# (compute capability, MiB that nvidia-smi prints)
GPUS = {
    "A100-80G": ((8, 0), 81920),
    "H200": ((9, 0), 143771),
    "B200": ((10, 0), 183359),
    "RTX PRO 6000": ((12, 0), 97887),
}
MTP = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
# What each model is run with, by GPU: SGLang chooses otherwise on other architectures.
H200_RUNS: list[dict[str, Any]] = [
    {"tp_size": 1},
    {"tp_size": 4},
    {"tp_size": 8},
    {"tp_size": 16, "nnodes": 2, "dist_init_addr": "127.0.0.1:1"},
    {"tp_size": 8, "attn_dp_size": 8},
    {"tp_size": 8, "attn_dp_size": 2},
    {"tp_size": 4, "pp_size": 2},
    {"tp_size": 8, "kv_cache_dtype": "fp8_e4m3"},
    {"tp_size": 8, "kv_cache_dtype": "bfloat16"},
    {"tp_size": 8, "max_running_requests": 64},
    {"tp_size": 8, "disable_radix_cache": True, "max_running_requests": 64},
    {"tp_size": 8, **MTP},
    {"tp_size": 8, "attn_dp_size": 8, **MTP},
]
RUNS: list[tuple[str, dict[str, Any]]] = [
    *(("H200", run) for run in H200_RUNS),
    ("B200", {"tp_size": 4}),
    ("B200", {"tp_size": 8, "attn_dp_size": 8}),
    ("A100-80G", {"tp_size": 8}),
    ("RTX PRO 6000", {"tp_size": 8}),
]

R1, QWEN3, QWEN3_VL = "deepseek-ai--DeepSeek-R1", "Qwen--Qwen3-235B-A22B-FP8", "Qwen--Qwen3-VL-32B-Instruct"
# What changes the memory fraction alone, on an H200 with tp 8.
FRACTIONS: list[tuple[str, dict[str, Any]]] = [
    (R1, {"disable_cuda_graph": True}),
    (R1, {"attn_dp_size": 8, "disable_cuda_graph": True}),
    (R1, {"attn_dp_size": 8, "cuda_graph_max_bs_decode": 64}),
    (R1, {"attn_dp_size": 8, "moe_a2a_backend": "deepep"}),
    (R1, {"attn_dp_size": 8, "moe_a2a_backend": "deepep", "disaggregation_mode": "prefill"}),
    (R1, {"attn_dp_size": 8, "moe_a2a_backend": "deepep", "disaggregation_mode": "decode"}),
    (R1, {"disaggregation_mode": "prefill"}),
    (R1, {"disaggregation_mode": "decode"}),
    (R1, {"disaggregation_mode": "decode", **MTP}),
    (R1, {"cuda_graph_max_bs_decode": 64, "max_running_requests": 32}),
    (R1, {"chunked_prefill_size": 131072}),
    (QWEN3, {"ep_size": 8}),
    (QWEN3, {"moe_a2a_backend": "deepep"}),
    (QWEN3, {"moe_a2a_backend": "deepep", "cuda_graph_backend_prefill": "full"}),
    (QWEN3, {"moe_a2a_backend": "deepep", "cuda_graph_max_bs_prefill": 4096}),
    (QWEN3, {"ep_size": 8, "enable_two_batch_overlap": True}),
    (QWEN3_VL, {"cuda_graph_backend_prefill": "breakable"}),
    (QWEN3_VL, {"enable_multimodal": False}),
    (QWEN3_VL, {"language_only": True}),
    (QWEN3_VL, {"max_running_requests": 512}),
    ("meta-llama--Llama-4-Scout-17B-16E-Instruct", {"enable_multimodal": True}),
]


def gpu(name: str) -> AbstractContextManager[None]:
    """`machine` with GPUs of this kind."""
    return machine(*GPUS[name])


@contextmanager
def machine(capability: tuple[int, int], mib: int) -> Iterator[None]:
    """SGLang's questions about the machine are answered as by a host with 8 GPUs of `mib` MiB each."""
    major, minor = capability
    hopper, server, workstation = major == 9, major == 10, major == 12
    answers = {
        "is_cuda": True,
        "is_cpu": False,
        "is_sm90_supported": hopper,
        "is_sm100_supported": server,
        "is_sm120_supported": workstation,
        "is_blackwell_supported": server or workstation,
        "is_flashinfer_available": True,
        "is_mnnvl_fabric_device": False,
        "get_device_memory_capacity": float(mib),
    }
    facts = dict.fromkeys(("is_hip", "is_npu", "is_xpu", "is_musa", "is_mps", "is_sm110"), False)
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ))
        stack.enter_context(
            override_platform(
                **facts,
                is_cuda=True,
                has_amx=False,
                has_flashinfer=True,
                is_sm90=hopper,
                is_hopper_with_cuda_12_3=hopper,
                is_sm100=server,
                is_sm100_or_sm110=server,
                is_sm120=workstation,
                is_blackwell=server or workstation,
                device_sm=major * 10 + minor,
                device_capability=capability,
            )
        )
        for module in [m for n, m in sys.modules.items() if n.startswith("sglang.")]:
            for question, answer in answers.items():
                if callable(vars(module).get(question)):
                    stack.enter_context(
                        patch.object(module, question, lambda *_, answer=answer, **__: answer)
                    )
        stack.enter_context(patch.object(torch.cuda, "is_available", lambda: True))
        stack.enter_context(patch.object(torch.cuda, "device_count", lambda: 8))
        stack.enter_context(patch.object(torch.cuda, "get_device_capability", lambda *_: capability))
        stack.enter_context(patch.object(torch.version, "cuda", "13.0"))
        yield


def resolved(path: str, arguments: dict[str, Any]) -> ServerArgs:
    """SGLang's arguments with all that it chooses itself."""
    args = ServerArgs(model_path=path, device="cuda", skip_tokenizer_init=True, **arguments)
    args.resolve_once()
    return args


def divided(path: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """What SGLang chooses and how it divides REST GiB, on one rank of the largest pipeline stage."""
    args = resolved(path, arguments)
    view = resolving_view(args)
    graphs = view.cuda_graph_config
    result = {
        "mem_fraction_static": view.mem_fraction_static,
        "chunked_prefill_size": view.chunked_prefill_size,
        "decode_graphs": graphs.decode.max_bs,
        "prefill_graphs": graphs.prefill.backend,
        "page_size": view.page_size,
    }
    with use_context(create_context(args, role="scheduler")):
        return result | _pools(args)


def _pools(args: ServerArgs) -> dict[str, Any]:
    view, config, parallel = resolving_view(args), model_config_of(args), get_parallel()
    stages = [get_pp_indices(config.num_hidden_layers, rank, view.pp_size) for rank in range(view.pp_size)]
    start, end = max(stages, key=lambda stage: stage[1] - stage[0])
    model = SimpleNamespace(start_layer=start, end_layer=end)
    if config.quantization:
        model.quant_config = get_quant_config(config, LoadConfig(), {})
    kind, dtype = configure_kv_cache_dtype(
        server_args_kv_cache_dtype=get_model().kv_cache_dtype,
        model=model,
        model_dtype=config.dtype,
        is_draft_worker=False,
        is_dflash=False,
        speculative_draft_attention_backend="",
    )
    algorithm = SpeculativeAlgorithm.from_string(view.speculative_algorithm)
    spec = resolve_spec_aux_hidden_state_config(
        server_args=args, model_config=config, spec_algorithm=algorithm, is_draft_worker=False
    )
    caches = KVCacheConfigurator(
        device="cuda",
        gpu_id=0,
        attn_dp_size=parallel.attn_dp_size,
        pp_size=view.pp_size,
        pp_group=SimpleNamespace(rank_in_group=0),
        model=model,
        model_config=config,
        server_args=args,
        kv_cache_dtype=dtype,
        model_dtype=config.dtype,
        page_size=get_schedule().page_size,
        sliding_window_size=config.sliding_window_size or getattr(config, "window_size", None),
        spec_algorithm=algorithm,
        is_draft_worker=False,
        post_capture_kv_active=False,
        spec_aux_config=spec,
        is_hybrid_swa=config.is_hybrid_swa,
        is_hybrid_swa_compress=config.is_hybrid_swa_compress,
        use_mla_backend=config.attention_arch == AttentionArch.MLA,
        layer_info=resolve_layer_indices(model=model, model_config=config, is_draft_worker=False),
        forward_stream=None,
        req_to_token_pool=None,
        token_to_kv_pool_allocator=None,
        memory_pool_config=None,
        kv_cache_dtype_str=kind or get_model().kv_cache_dtype,
    )
    rest, result = float(REST), {"kv_dtype": str(dtype).removeprefix("torch.")}
    if caches.mambaish_config is not None:
        result["state_bytes"] = caches.mambaish_config.mamba2_cache_params.mamba_cache_per_req
        rest = caches._handle_max_mamba_cache(rest)
        result["state_slots"] = get_schedule().max_mamba_cache_size
        result["state_slots_per_request"] = caches._calculate_mamba_ratio()
    sizes = create_memory_pool_configurator(caches)
    # Stages agree on the least tokens by all_reduce; one stage has no one to agree with.
    with (
        patch.object(torch.distributed, "all_reduce"),
        parallel.override(world_group=SimpleNamespace(cpu_group=None)),
    ):
        pools = caches.config_from_budget(int(rest * GIB))
    bytes_per_token = getattr(sizes, "bytes_per_full_token", None) or sizes._cell_size
    result |= {
        "bytes_per_token": bytes_per_token,
        "kv_gib": rest,
        "tokens": pools.max_total_num_tokens,
        "window_tokens": pools.swa_max_total_num_tokens,
        "requests": caches.resolve_max_num_reqs(pools.max_total_num_tokens),
        "draft_layers": spec.eagle_draft_num_layers,
    }
    return {key: value for key, value in result.items() if value is not None}


def main() -> int:
    """Write sglang-<version>-kv.json into the folder named on the command line."""
    logging.disable(logging.CRITICAL)
    record: dict[str, Any] = {
        "source": f"SGLang {sglang.__version__}, by tools/sglang_memory.py",
        "rest_gib": REST,
        "gpu_mib": {name: mib for name, (_, mib) in GPUS.items()},
        "models": {},
    }
    for path in sorted(CONFIGS.glob("*.json")):
        runs = []
        with model_folder(json.loads(path.read_text(encoding="utf-8"))) as model:
            for name, arguments in RUNS:
                with gpu(name):
                    try:
                        result = divided(model, arguments)
                    except (AssertionError, RuntimeError, ValueError) as refusal:
                        result = {"refused": str(refusal).partition("\n")[0]}
                runs.append({"gpu": name, "arguments": arguments} | result)
        record["models"][path.stem] = runs
        print(path.stem, sum("refused" in run for run in runs), "refused of", len(runs), flush=True)
    fractions = []
    for name, changes in FRACTIONS:
        arguments = {"tp_size": 8, **changes}
        configs = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
        with model_folder(configs) as model, gpu("H200"):
            fraction = resolving_view(resolved(model, arguments)).mem_fraction_static
        fractions.append(json.dumps({"model": name, "arguments": arguments, "mem_fraction_static": fraction}))
    rows = [
        f'"{name}": [\n' + ",\n".join(json.dumps(run) for run in runs) + "\n]"
        for name, runs in record.pop("models").items()
    ]
    head = json.dumps(record, indent=1)[:-2] + ',\n"fractions": [\n' + ",\n".join(fractions) + "\n],\n"
    text = head + '"models": {\n' + ",\n".join(rows) + "\n}\n}\n"
    target = Path(sys.argv[1]) / f"sglang-{sglang.__version__}-kv.json"
    target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
