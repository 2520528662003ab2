"""Limits in the code and the presets are those that the engines' own functions accept."""

from __future__ import annotations

import re
from collections.abc import Mapping

import engine_sites
import planned_commands
import pytest
from headfirst.decide import engines
from headfirst.decide.engines import presets
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.engines.sglang import support as sglang
from headfirst.decide.engines.vllm import support as vllm
from headfirst.decide.hardware.gpus import FP8_CAPABILITY
from headfirst.decide.model import catalogue
from headfirst.decide.model.checkpoint import Checkpoint

Capability = tuple[int, int]
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
    for rule in presets.rules(engine):
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
