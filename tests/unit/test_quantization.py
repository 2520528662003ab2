"""The table of quantisation schemes: sizes, names and plans follow from one row; the unknown is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from headfirst.common import quantization
from headfirst.common.convertible import NotConvertibleError, read_format
from headfirst.common.errors import InputError
from headfirst.common.quantization import Scheme, Stored
from headfirst.control.inventory.inventory import load
from headfirst.decide.model import catalogue
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.measured import Part
from headfirst.decide.model.parameters import Split, Tensor, stored_bytes
from headfirst.decide.model.quantization import Quantization, read
from headfirst.decide.plan.build import build
from headfirst.decide.plan.sizing.alternatives import base_name

PACKAGE = Path(quantization.__file__).parents[1]
BASE, TRIAL = "Qwen/Qwen3-8B", "example/Qwen3-8B-MXFP6"
MXFP6: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "mxfp6-pack-quantized",
    "config_groups": {"group_0": {"weights": {"num_bits": 6, "type": "float", "group_size": 32}}},
}
ROW = Scheme("mxfp6", "float", (Stored("U8", 6, "weight"), Stored("U8", 8, "scale")), group=32)
INVENTORY = """\
[head]
node01 ansible_host=192.0.2.1 gpus=1 gpu=L40S

[all:vars]
ansible_user=root
engine=vllm
model=example/Qwen3-8B-MXFP6
"""


def quantised(config: dict[str, Any]) -> Quantization:
    found = read(config, "x")
    assert found is not None
    return found


def base() -> Checkpoint:
    model = catalogue.lookup(BASE)
    assert model is not None
    return model


def sizes(config: dict[str, Any]) -> dict[str, int]:
    """Bytes of 64 x 128 weights."""
    model = base().model_copy(update={"quantization": quantised(config)})
    return stored_bytes(model, Tensor(64, 128, Split.SHARDED, Part.DENSE), quantized=True)


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of the catalogue in MXFP6, whose size nobody has published."""
    added = {
        "same_as": BASE,
        "changes": {"quantization_config": MXFP6},
        "weights": {"total_bytes_are": "computed"},
    }
    entries = {**catalogue._entries(), TRIAL: added}
    monkeypatch.setattr(catalogue, "_entries", lambda: entries)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, {"F8_E4M3": 8192, "U8": 256}),
        ({"quant_method": "modelopt", "quant_algo": "INT8_SQ"}, {"I8": 8192, "F32": 4}),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, {"F8_E4M3": 8192, "F32": 4}),
        ({"quant_method": "fbgemm_fp8"}, {"F8_E4M3": 8192, "F32": 256}),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, {"U8": 4096, "F8_E4M3": 512, "F32": 8}),
        ({"quant_method": "mxfp4"}, {"U8": 4096 + 256}),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, {"I32": 4096 + 64, "F16": 256}),
        ({"quant_method": "gptq", "bits": 4, "group_size": 64}, {"I32": 4096 + 64 + 512, "F16": 256}),
        ({"quant_method": "compressed-tensors", "bits": 4}, {"I32": 4096, "BF16": 128, "I64": 16}),
    ],
    ids=str,
)
def test_sizes_follow_from_the_table(config: dict[str, Any], expected: dict[str, int]) -> None:
    assert sizes(config) == expected


@pytest.mark.parametrize(
    ("kind", "bits", "group", "name"),
    [
        ("float", 8, 32, "mxfp8"),
        ("float", 8, 128, "fp8"),
        ("float", 4, 32, "mxfp4"),
        ("float", 4, None, "nvfp4"),
        ("int", 3, 128, ""),
        ("float", 6, 32, ""),
    ],
)
def test_schemes_by_their_numbers(kind: str, bits: int, group: int | None, name: str) -> None:
    weights = {"num_bits": bits, "type": kind, "group_size": group}
    config = {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": weights}}}
    assert quantised(config).scheme == name


def test_every_row_can_be_found_by_its_name() -> None:
    for row in quantization.SCHEMES:
        assert quantization.find(row.name, next(iter(row.packers), "")) is row
        assert quantization.identify("", row.name, "", None, None) == row.name


@pytest.mark.parametrize(
    "config",
    [
        MXFP6,
        {"quant_method": "gptq", "bits": 3},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
        {"quant_method": "quark"},
    ],
    ids=str,
)
def test_an_unknown_scheme_has_no_size(config: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"quantised with {config['quant_method']}") as raised:
        sizes(config)
    assert raised.value.where == f"quantization_config of {BASE}"
    assert "model_source=path" in str(raised.value.hint)


def test_an_unknown_scheme_of_the_catalogue_is_refused(entry: None) -> None:
    with pytest.raises(InputError, match="compressed-tensors, a scheme that is not in the table"):
        catalogue.lookup(TRIAL)


def test_one_row_is_enough(entry: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Description, names, memory and plan of a new scheme, with no other change."""
    monkeypatch.setattr(quantization, "SCHEMES", (*quantization.SCHEMES, ROW))
    model = catalogue.lookup(TRIAL)
    assert model is not None
    assert model.quantization_name == "compressed-tensors mxfp6"
    assert model.quantization is not None
    assert (model.quantization.bits, model.convertible) == (6, False)
    assert base_name(TRIAL) == base_name(BASE)
    plain = base().bytes_by_part
    ratio = model.bytes_by_part["dense"] / plain["dense"]
    assert ratio == pytest.approx(6.25 / 16, rel=0.001)  # six bits, and eight for each 32
    (tmp_path / "x.ini").write_text(INVENTORY, encoding="utf-8")
    (service,) = build(load([tmp_path / "x.ini"]), {None: model}).services
    fit = service.fit
    assert fit is not None and fit.fits
    assert fit.weight_bytes_total == sum(model.bytes_by_part.values()) < 0.5 * sum(plain.values())
    with pytest.raises(NotConvertibleError, match="mxfp6-pack-quantized is not understood"):
        read_format(MXFP6)


def test_schemes_are_named_in_the_table_alone() -> None:
    """But for the kernels that convert them, and what an engine calls them."""
    names = {row.name for row in quantization.SCHEMES} - {"fp8", "int8"}  # dtypes, too
    literal = re.compile(rf"[\"'](?:{'|'.join(names)})[\"']")
    elsewhere = ("common/quantization.py", "common/convertible.py", "node/weights/", "decide/engines/")
    named = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if literal.search(path.read_text(encoding="utf-8"))
    }
    assert not {name for name in named if not name.startswith(elsewhere)}
