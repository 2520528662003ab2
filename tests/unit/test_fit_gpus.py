"""GPUs by name, and what they decide: FP8 or BF16."""

from __future__ import annotations

import pytest
from headfirst.errors import InputError
from headfirst.model import Checkpoint, catalogue
from headfirst.plan import gpus, precision


def model(id: str) -> Checkpoint:
    found = catalogue.lookup(id)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("A100-80G", "A100-80G"),
        ("a100-80gb", "A100-80G"),
        ("NVIDIA A100-SXM4-80GB", "A100-80G"),
        ("NVIDIA A100 80GB PCIe", "A100-80G"),
        ("NVIDIA A100-PCIE-40GB", "A100-40G"),
        ("NVIDIA A800-SXM4-80GB", "A800-80G"),
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
    assert [gpus.find(name).name for name in gpus.names()] == gpus.names()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("A100", "Did you mean A100-40G or A100-80G?"),
        ("V100", "Did you mean V100-16G or V100-32G?"),
        ("NVIDIA H100 NVL", "Known: T4"),
        ("GB200", "Known: T4"),
        ("zzz", "Known: T4"),
    ],
)
def test_unknown_names_get_no_other_card(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=f"Unknown GPU '{name}'") as raised:
        gpus.find(name, where="x.ini:3")
    assert hint in str(raised.value.hint)
    assert raised.value.where == "x.ini:3"


@pytest.mark.parametrize(
    ("gpu", "device", "convert", "words"),
    [
        ("A100-80G", "cuda", True, "A100-80G (compute capability 8.0) has no FP8: that starts with 8.9"),
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
    decided = precision.choose(model("deepseek-ai/DeepSeek-V3"), found, device=device)
    assert decided.convert_to_bf16 is convert
    assert decided.dtype == ("bf16" if convert else "fp8")
    assert words in decided.reason


def test_bf16_stays() -> None:
    decided = precision.choose(model("Qwen/QwQ-32B"), gpus.find("A100-80G"), device="cuda")
    assert (decided.convert_to_bf16, decided.dtype) == (False, "bf16")
