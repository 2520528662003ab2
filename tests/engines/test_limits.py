"""Limits in the code and the presets are those that the engines' own functions accept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import engine_sites
import planned_commands
import pytest
from headfirst.common.safetensors_file import StoredTensor
from headfirst.decide import engines
from headfirst.decide.engines import presets
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.engines.sglang import support as sglang
from headfirst.decide.engines.vllm import support as vllm
from headfirst.decide.hardware import gpus
from headfirst.decide.hardware.gpus import FP8_CAPABILITY
from headfirst.decide.model import catalogue
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.config import WeightFiles, from_config

Capability = tuple[int, int]
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
MODELOPT = {"quant_method": "modelopt"}
MIXED = {"a": {"quant_algo": "NVFP4"}, "b": {"quant_algo": "FP8"}}
COMPRESSED = {"quant_method": "compressed-tensors", "quantization_status": "compressed"}
# Configs of quantised checkpoints, each with the safetensors dtype of its weights.
QUANTIZED: tuple[tuple[dict[str, Any] | None, str], ...] = (
    (None, "BF16"),
    (AWQ, "I32"),
    (AWQ | {"group_size": 64}, "I32"),
    *(
        (GPTQ | change, "I32")
        for change in ({}, {"desc_act": True}, {"sym": False}, {"bits": 8}, {"bits": 3})
    ),
    *((GPTQ | {"group_size": size}, "I32") for size in (-1, 64, 256)),
    ({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}, "F8_E4M3"),
    *(({"quant_method": name}, "F8_E4M3") for name in ("fbgemm_fp8", "mxfp8", "quark", "w8a8_fp8")),
    *(
        ({"quant_method": name}, "I8")
        for name in ("compressed_tensors", "experts_int8", "w4afp8", "w8a8_int8")
    ),
    *(
        (COMPRESSED | {"config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}, dtype)
        for dtype, weights in (
            ("F8_E4M3", {"num_bits": 8, "type": "float", "symmetric": True}),
            ("I8", {"num_bits": 8, "type": "int", "symmetric": True}),
            ("I32", {"num_bits": 4, "type": "int", "symmetric": True, "group_size": 128}),
        )
    ),
    *((MODELOPT | {"quant_algo": name}, "F8_E4M3") for name in ("FP8", "MXFP8")),
    (MODELOPT | {"quant_algo": "NVFP4", "group_size": 16}, "U8"),
    (MODELOPT | {"quant_algo": "MIXED_PRECISION", "quantized_layers": MIXED}, "U8"),
    ({"quant_method": "mxfp4"}, "U8"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "U8"),
    ({"quant_method": "blockwise_int8", "weight_block_size": [128, 128]}, "I8"),
    ({"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}, "I32"),
    ({"quant_method": "hqq"}, "U8"),
)
CAPABILITIES: tuple[Capability, ...] = ((7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
LOWEST: Mapping[str, Mapping[str, Capability]] = {
    "sglang": {
        "start": sglang.LOWEST_CAPABILITY,
        "bf16": sglang.BF16_CAPABILITY,
        "mxfp8": sglang.MXFP8_CAPABILITY,
        "sparse attention": sglang.SPARSE_CAPABILITY,
    },
    "vllm": {
        "bf16": vllm.BF16_CAPABILITY,
        "flashinfer": vllm.FLASHINFER_CAPABILITY,
        "fp8 latents": FP8_CAPABILITY,
        "sparse attention": vllm.SPARSE_CAPABILITY,
    },
}
# What an argument of a preset needs, by fact; SGLang's code states nothing of its arguments.
ARGUMENTS = {("--kv-cache-dtype", "fp8"): "fp8 cache", ("--moe-backend", "deep_gemm_mega_moe"): None}


# LMDeploy's lowest capabilities are in TurboMind's compiled part and in kernels.
@pytest.mark.parametrize(("engine", "version"), [pair for pair in engine_sites.VERSIONS if pair[0] in LOWEST])
def test_the_engine_accepts_the_same_gpus(engine: str, version: str) -> None:
    question = {"engine": engine, "capabilities": CAPABILITIES}
    answers = engine_sites.run(engine, version, "limits_driver.py", question)
    accepted = {
        fact: [capability for capability, facts in zip(CAPABILITIES, answers, strict=True) if facts[fact]]
        for fact in answers[0]
    }
    for fact, lowest in LOWEST[engine].items():
        assert accepted[fact] == [capability for capability in CAPABILITIES if capability >= lowest], fact
    if engine != "vllm":
        return
    chosen = set()
    for rule in presets.of(engine).rules:
        for argument in rule.arguments.items():
            if argument in ARGUMENTS:
                fact = ARGUMENTS[argument] or argument[1]
                chosen.add(argument)
                given = {capability for capability in CAPABILITIES if rule.suits(capability)}
                assert given <= set(accepted[fact]), (argument, given)
    assert chosen == ARGUMENTS.keys()


@pytest.mark.parametrize("version", [version for name, version in engine_sites.VERSIONS if name == "vllm"])
def test_vllm_has_kernels_from_its_lowest_capability_on(version: str) -> None:
    library = engine_sites.engine_site("vllm", version) / "vllm" / "_C_stable_libtorch.abi3.so"
    cubins = {int(number) for number in re.findall(rb"\bsm_(\d+)", library.read_bytes())}
    assert divmod(min(cubins), 10) == vllm.LOWEST_CAPABILITY


@pytest.mark.parametrize("version", [version for name, version in engine_sites.VERSIONS if name == "sglang"])
def test_sglangs_classes_divide_the_attention_of_the_same_architectures(version: str) -> None:
    smallest: dict[str, Checkpoint] = {}
    for checkpoint in filter(None, map(catalogue.lookup, catalogue.ids())):
        known = smallest.setdefault(checkpoint.architecture, checkpoint)
        if checkpoint.total_bytes < known.total_bytes:
            smallest[checkpoint.architecture] = checkpoint
    question = {name: planned_commands.config(checkpoint.id) for name, checkpoint in smallest.items()}
    divided = engine_sites.run("sglang", version, "attention_driver.py", question)
    assert len(divided) > 30
    engine = engines.get("sglang", version)
    layout = Layout(2, attention_data=2)
    for name in divided:
        problems = engine.layout_problems(
            smallest[name], Machines(1, 8), layout, dtype=smallest[name].dtype, values={}
        )
        accepted = not any("does not divide the attention" in problem for problem in problems)
        assert accepted == divided[name], name


@pytest.mark.parametrize("gpu", ["T4", "A100-80G", "H100-80G", "B200-180G"])
@pytest.mark.parametrize(("name", "version"), [pair for pair in engine_sites.VERSIONS if pair[0] in LOWEST])
def test_the_engine_loads_the_same_quantised_checkpoints(name: str, version: str, gpu: str) -> None:
    engine, planned, lowest = engines.get(name, version), gpus.find(gpu), lowest_capabilities(name, version)
    # What quark_mxfp4 can quantise once more is not in this check of SGLang's.
    given = [None, *sorted(lowest.keys() - {"quark_mxfp4"})]
    configs = [config for config, _ in QUANTIZED]
    question = {"capability": planned.compute_capability, "configs": configs, "given": given}
    answers = engine_sites.run(name, version, "quantization_driver.py", question | {"engine": name})
    different = []
    for (config, dtype), results in zip(QUANTIZED, answers, strict=True):
        checkpoint = quantized(config, dtype)
        for method, result in zip(given, results, strict=True):
            if config is None and method in checkpoint_only(name, version):
                continue  # a later step refuses it: get_quant_config
            if checkpoint.dtype == "fp8" and method is None and planned.lacks((8, 0)):
                continue  # the schemes of Quark and compressed-tensors need more than these methods
            loads = result == "" or (result in lowest and planned.reaches(lowest[result]))
            values = {"quantization": method} if method else {}
            problems = engine.support_problems(checkpoint, planned, "chat", values)
            if checkpoint.dtype == "fp8" and method is None:  # else it is converted
                fp8 = engine.fp8_capability(checkpoint)
                problems += [] if fp8 and planned.reaches(fp8) else ["conversion"]
            if loads == bool(problems):
                different.append((config, method, result, problems))
    assert different == []


def lowest_capabilities(name: str, version: str) -> dict[str, Capability]:
    """Method of quantisation -> the lowest compute capability, by the engine's table."""
    if name == "vllm":
        return {key: divmod(lowest, 10) for key, lowest in vllm.tables(version)["quantizations"].items()}
    methods = sglang.table(version).quantizations
    return {key: divmod(method.min_capability, 10) for key, method in methods.items()}


def checkpoint_only(name: str, version: str) -> set[str | None]:
    """Methods of SGLang's that do not quantise while they load."""
    methods = sglang.table(version).quantizations if name == "sglang" else {}
    return {key for key, method in methods.items() if method.checkpoint_only}


# Only Granite's SWA architectures, of other modules of vLLM's, have sinks in these.
WITHOUT_SINKS = {"granitemoe"}


@pytest.mark.parametrize("version", [version for name, version in engine_sites.VERSIONS if name == "vllm"])
def test_vllm_has_the_same_kernels_and_scaled_positions(version: str) -> None:
    answer = engine_sites.run("vllm", version, "kernels_driver.py", {})
    assert answer["heads"] == sorted(vllm._FLASHINFER_HEADS)
    assert answer["scaled"] == sorted(vllm._SCALED_ROPE)
    assert not (answer["sinks"] or answer["prefix"] or answer["triton"])
    others = {*answer["forced"], *answer["in images"]}
    assert [name for name in sorted(others) if not name.startswith(vllm._WITHOUT_FLASHINFER)] == []
    for module, names in answer["with sinks"].items():
        listed = [name for name in names if name.startswith(vllm._WITHOUT_FLASHINFER)]
        assert bool(listed) == (module not in WITHOUT_SINKS), (module, names)
        others.update(names)
    known = vllm.tables(version)["architectures"]
    assert {name for name in known if name.startswith(vllm._WITHOUT_FLASHINFER)} <= others
    for start in vllm._WITHOUT_FLASHINFER:
        assert any(name.startswith(start) for name in others), start


# INT4 of compressed-tensors as its library writes it, and changes of the group and of the whole config.
INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "dynamic": False, "strategy": "group"}
INT4 |= {"group_size": 128}
INT4_GROUP = {"targets": ["Linear"], "weights": INT4, "format": "pack-quantized"}
PACKED = COMPRESSED | {"format": "pack-quantized", "config_groups": {"group_0": INT4_GROUP}}
GROUPS: tuple[dict[str, Any], ...] = (
    *({"weights": INT4 | {"group_size": size}} for size in (32, 64)),
    {"weights": INT4 | {"group_size": 32, "symmetric": False}},
    {"weights": INT4 | {"group_size": 32}, "format": None},
    {"weights": INT4 | {"group_size": 32}, "targets": ["re:.*mlp.*"]},
)
LMDEPLOY = (
    # The bits of GPTQ's weights are read by TurboMind's compiled part alone.
    *((config, dtype) for config, dtype in QUANTIZED if not config or config.get("bits", 4) == 4),
    (AWQ | {"version": "gemv"}, "I32"),
    (PACKED, "I32"),
    *((PACKED | {"config_groups": {"group_0": INT4_GROUP | change}}, "I32") for change in GROUPS),
    (PACKED | {"quantization_status": "frozen"}, "I32"),
    ({"quant_method": "smooth_quant"}, "I8"),
)


@pytest.mark.parametrize(
    "version", [version for name, version in engine_sites.VERSIONS if name == "lmdeploy"]
)
def test_lmdeploys_back_ends_read_the_same_quantised_checkpoints(version: str) -> None:
    published = LLAMA | {"model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5}
    question = [published | ({"quantization_config": config} if config else {}) for config, _ in LMDEPLOY]
    answers = engine_sites.run("lmdeploy", version, "lmdeploy_quantization_driver.py", question)
    different = []
    for (config, dtype), reads in zip(LMDEPLOY, answers, strict=True):
        for name, accepted in reads.items():
            problems = engines.get("lmdeploy", version).support_problems(
                quantized(config, dtype), None, "chat", {"backend": name}
            )
            if accepted == bool(problems):
                different.append((name, config, problems))
    assert different == []


def quantized(config: dict[str, Any] | None, dtype: str) -> Checkpoint:
    """A Llama with this quantization_config and weights of this safetensors dtype."""
    weights = WeightFiles(1000, (), [[StoredTensor("model.layers.0.mlp.up_proj.weight", dtype, (), 0, 1000)]])
    described = LLAMA if config is None else LLAMA | {"quantization_config": config}
    return from_config(described, id="a/b", revision=None, weights=weights, source="folder", where="x")
