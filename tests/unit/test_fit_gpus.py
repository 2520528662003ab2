"""GPUs by name, and what they decide: FP8 or BF16."""

from __future__ import annotations

import json
from importlib.resources import files
from types import SimpleNamespace
from typing import Any, cast

import pytest
from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.engines.base import Engine
from headfirst.decide.engines.layout import Layout
from headfirst.decide.hardware import gpus
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.parameters import parameters
from headfirst.decide.model.quantization import read as read_quantization
from headfirst.decide.package_data import read_json
from headfirst.decide.plan.sizing.fit import fit
from headfirst.decide.plan.weights import precision
from known_models import model
from together import together


@together(
    ("name", "expected"),
    [
        ("A100-80G", "A100-80G"),
        ("a100-80gb", "A100-80G"),
        ("NVIDIA A100-SXM4-80GB", "A100-80G"),
        ("NVIDIA A100 80GB PCIe", "A100-80G"),
        ("NVIDIA A100-PCIE-40GB", "A100-40G"),
        ("NVIDIA A800-SXM4-80GB", "A800-80G"),
        ("NVIDIA A800-SXM4-40GB", "A800-40G"),
        ("NVIDIA H100 PCIe", "H100-80G"),
        ("NVIDIA H100 NVL", "H100-NVL-94G"),
        ("NVIDIA GH200 480GB", "GH200-96G"),
        ("NVIDIA GB200", "GB200-186G"),
        ("NVIDIA B300 SXM6 AC", "B300-288G"),
        ("NVIDIA GB300", "GB300-278G"),
        ("NVIDIA GB10", "GB10"),
        ("NVIDIA H20-3e", "H20-141G"),
        ("NVIDIA RTX A6000", "RTX-A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000"),
        ("NVIDIA GeForce RTX 4090 D", "RTX-4090D"),
        ("4090-48g", "RTX-4090-48G"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA H100 80GB HBM3", "H100-80G"),
        ("NVIDIA H20", "H20-96G"),
        ("NVIDIA H200", "H200-141G"),
        ("NVIDIA B200", "B200-180G"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("Tesla V100-SXM2-32GB", "V100-32G"),
        ("L40S", "L40S"),
    ],
)
def test_names_aliases_and_the_drivers_names(name: str, expected: str) -> None:
    assert gpus.find(name).name == expected


def test_every_name_finds_itself() -> None:
    names = [entry["name"] for entry in read_json("headfirst.decide.hardware", "gpus.json")["gpus"]]
    assert [gpus.find(name).name for name in names] == names


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("A100", "Did you mean A100-40G or A100-80G?"),
        ("V100", "Did you mean V100-16G or V100-32G?"),
        ("A800", "Did you mean A800-40G or A800-80G?"),
        ("H100-64G", "Known: T4"),
        ("GB400", "Known: T4"),
        ("NVIDIA H100 MIG 1g.10gb", "Known: T4"),
        ("zzz", "Known: T4"),
    ],
)
def test_unknown_names_get_no_other_card(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=f"Unknown GPU '{name}'") as raised:
        gpus.find(name, where="x.ini:3")
    assert hint in str(raised.value.hint)
    assert raised.value.where == "x.ini:3"


def test_entries_have_a_source_of_their_memory() -> None:
    data = json.loads(files("headfirst.decide.hardware").joinpath("gpus.json").read_text(encoding="utf-8"))
    assert {entry["source"] for entry in data["gpus"]} <= data["sources"].keys()
    assert gpus.find("MI355X").vendor == "amd"
    assert gpus.find("MI355X").architecture == "gfx950"
    assert gpus.find("L40S").vendor == "nvidia"


@pytest.mark.parametrize("alias", ["H200", "NVIDIA H100 80GB HBM3", "a100-80gb"])
def test_an_alias_of_two_cards_is_refused(alias: str) -> None:
    data = json.loads(files("headfirst.decide.hardware").joinpath("gpus.json").read_text(encoding="utf-8"))
    added = {"name": "H900", "memory_mib": 1, "compute_capability": "9.0", "aliases": [alias]}
    with pytest.raises(ValueError, match=f"'{alias}' is a spelling of .* and of H900"):
        gpus._read([*data["gpus"], added])


def test_what_is_reported_wins_over_the_catalogue() -> None:
    made = gpus.reported("NVIDIA GeForce RTX 4090", 49140 * gpus.MIB, (8, 9))
    assert (made.name, made.memory_bytes) == ("RTX-4090", 49140 * gpus.MIB)


@pytest.mark.parametrize("text", ["7.5", "8.9", "10.0", "12.1"])
def test_a_compute_capability_is_written_as_it_is_read(text: str) -> None:
    assert gpus.capability_text(gpus.capability(text)) == text


def test_an_unlisted_card_needs_its_memory_only() -> None:
    made = gpus.reported("NVIDIA H199", 94 << 30, None)
    assert (made.name, made.memory_bytes, made.compute_capability) == ("H199", 94 << 30, None)
    assert not made.fp8
    assert not made.lacks((7, 5))
    assert not made.reaches((7, 5))
    with pytest.raises(InputError, match="Unknown GPU"):
        gpus.reported("NVIDIA H199", None, (9, 0))


R1 = "deepseek-ai/DeepSeek-R1"


def engine(least: tuple[int, int] | None) -> Engine:
    """An engine that serves FP8 from this compute capability on."""
    stub = SimpleNamespace(title="An engine", fp8_capability=lambda checkpoint: least)
    return cast(Engine, stub)


NATIVE, MARLIN, NO_FP8 = engine((8, 9)), engine((8, 0)), engine(None)


@pytest.mark.parametrize(
    ("gpu", "device", "convert", "words"),
    [
        ("A100-80G", "cuda", True, "A100-80G (compute capability 8.0) has no FP8, which needs 8.9 or higher"),
        ("H20", "cuda", False, "computes in FP8"),
        ("L40S", "cuda", False, "computes in FP8"),
        (None, "cpu", True, "CPU"),
        (None, "cuda", False, "gpu=A100-80G"),
    ],
)
def test_fp8_is_converted_where_the_hardware_has_none(
    gpu: str | None, device: str, convert: bool, words: str
) -> None:
    found = gpus.find(gpu) if gpu else None
    decided = precision.choose(model(R1), found, NATIVE, device=device)
    assert decided.convert_to_bf16 is convert
    assert decided.dtype == ("bf16" if convert else "fp8")
    assert words in decided.reason


def test_the_engine_decides_where_fp8_is_served() -> None:
    decided = precision.choose(model(R1), gpus.find("A100-80G"), MARLIN, device="cuda")
    assert (decided.convert_to_bf16, decided.dtype) == (False, "fp8")
    assert "has no FP8, but An engine reads FP8 weights there" in decided.reason
    decided = precision.choose(model(R1), gpus.find("H200"), NO_FP8, device="cuda")
    assert (decided.convert_to_bf16, decided.dtype) == (True, "bf16")


def test_an_unknown_capability_converts_nothing() -> None:
    unlisted = gpus.reported("H199", 94 << 30, None)
    decided = precision.choose(model(R1), unlisted, NATIVE, device="cuda")
    assert (decided.convert_to_bf16, decided.dtype) == (False, "fp8")
    assert "gpu_capability=" in decided.reason


@pytest.mark.parametrize(
    ("gpu", "device", "hint"),
    [
        ("A100-80G", "cuda", "compute capability 8.9 or higher, or a checkpoint in BF16"),
        (None, "cpu", "BF16"),
    ],
)
@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "modelopt", "quant_algo": "FP8"},
        {"quant_method": "fp8", "fmt": "e5m2", "weight_block_size": [128, 128]},
        {
            "quant_method": "compressed-tensors",
            "format": "float-quantized",
            "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "group"}}},
        },
    ],
    ids=["modelopt", "e5m2", "groups"],
)
def test_fp8_that_the_converter_does_not_read_is_refused(
    quantization: dict[str, Any], gpu: str | None, device: str, hint: str
) -> None:
    found = model(R1)
    other = found.model_copy(
        update={"quantization": read_quantization(quantization, "x"), "weight_block_size": None}
    )
    assert not other.convertible
    with pytest.raises(InputError, match=r"cannot be converted to BF16 here: .* is not understood") as raised:
        precision.choose(other, gpus.find(gpu) if gpu else None, NATIVE, device=device, where="a.ini")
    assert hint in str(raised.value.hint)
    assert raised.value.where == "a.ini"


@pytest.mark.parametrize(
    "id",
    [
        *("RedHatAI/Qwen3-32B-FP8-dynamic", "RedHatAI/Meta-Llama-3.1-405B-Instruct-FP8"),
        *("deepseek-ai/DeepSeek-V3.2", "moonshotai/Kimi-K2-Instruct", "Qwen/Qwen3-235B-A22B-FP8"),
    ],
)
def test_fp8_of_every_layout_is_converted_where_the_hardware_has_none(id: str) -> None:
    decided = precision.choose(model(id), gpus.find("A100-80G"), NATIVE, device="cuda")
    assert decided.convert_to_bf16
    plain = model(id).converted
    assert (plain.dtype, plain.quantization, plain.convertible) == ("bf16", None, False)
    assert plain.total_bytes == pytest.approx(2 * model(id).total_bytes, rel=0.05)


@pytest.mark.parametrize(
    ("gpu", "missing", "in_bf16", "converts"),
    [
        ("A100-80G", [], [], False),
        ("A100-80G", ["no MXFP4 here"], [], True),
        ("V100-32G", ["no MXFP4 here"], [], False),  # nor BF16
        ("A100-80G", ["no such model"], ["no such model"], False),
    ],
)
def test_mxfp4_is_converted_where_that_lets_the_engine_serve_it(
    gpu: str, missing: list[str], in_bf16: list[str], converts: bool
) -> None:
    def problems(checkpoint: Checkpoint, *_more: object) -> list[str]:
        return in_bf16 if checkpoint.dtype == "bf16" else missing

    engine = cast(Engine, SimpleNamespace(title="An engine", support_problems=problems))
    decided = precision.choose(model("openai/gpt-oss-20b"), gpus.find(gpu), engine, device="cuda")
    assert decided.convert_to_bf16 is converts
    assert decided.dtype == ("bf16" if converts else "mxfp4")
    assert ("no MXFP4 here" in decided.reason) is converts


def test_the_back_end_that_the_user_chose_decides_about_mxfp4() -> None:
    checkpoint, gpu = model("openai/gpt-oss-20b"), gpus.find("A100-80G")
    lmdeploy = engines.get("lmdeploy")
    decided = precision.choose(checkpoint, gpu, lmdeploy, device="cuda", arguments={"backend": "pytorch"})
    assert (decided.convert_to_bf16, decided.dtype) == (True, "bf16")
    assert "quantised as mxfp4" in decided.reason
    assert not precision.choose(checkpoint, gpu, lmdeploy, device="cuda").convert_to_bf16


def test_what_is_quantised_while_it_loads_is_counted_so_whatever_type_is_computed() -> None:
    engine, gpu, checkpoint = engines.get("vllm"), gpus.find("H100-80G"), model("Qwen/QwQ-32B")
    values = engine.check_arguments(["--quantization", "fp8", "--dtype", "float32"]).values
    served = precision.choose(checkpoint, gpu, engine, device="cuda", arguments=values)
    loaded = precision.loaded(checkpoint, served, gpu, engine, values)
    assert (loaded.dtype, loaded.checkpoint.dtype) == ("fp8", "fp32")
    memory = fit(loaded.checkpoint, gpu, Layout(1), engine, dtype=loaded.dtype, arguments=values)
    # One byte a weight of the layers, four of the embedding and the head, which stay as they are computed.
    ends = 2 * checkpoint.vocab_size * checkpoint.hidden_size
    layers = parameters(checkpoint) - ends
    assert memory.weight_bytes_total == pytest.approx(layers + 4 * ends, rel=0.001)


def test_bf16_stays() -> None:
    decided = precision.choose(model("Qwen/QwQ-32B"), gpus.find("A100-80G"), NATIVE, device="cuda")
    assert (decided.convert_to_bf16, decided.dtype) == (False, "bf16")
