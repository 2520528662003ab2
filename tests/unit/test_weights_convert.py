"""FP8 → BF16: bits against ml_dtypes, files against the safetensors library, refusals, resuming."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from headfirst.errors import InputError, NotReadyError
from headfirst.weights import convert as convert_module
from headfirst.weights.convert import convert
from headfirst.weights.fp8 import dequantise, e4m3fn_values, to_bf16
from headfirst.weights.verify import verify
from safetensors.numpy import save_file
from weights_checkpoints import BF16, FP8, Array, fp8_weight, load, reference, scales, write_checkpoint

SHARD_1, SHARD_2 = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def bits_equal(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Equal bit for bit; NaNs are equal to each other whatever their payload."""
    nan = np.isnan(theirs.view(BF16).astype(np.float32))
    return bool((np.isnan(ours.view(BF16).astype(np.float32)) == nan).all() and (ours == theirs)[~nan].all())


def two_shards() -> dict[str, dict[str, Array]]:
    rng = np.random.default_rng(7)
    return {
        SHARD_1: {
            "model.layers.0.mlp.gate_proj.weight": fp8_weight(576, 300, 1),
            "model.layers.0.mlp.gate.e_score_correction_bias": rng.normal(size=9).astype(np.float32),
            "model.norm.weight": rng.normal(size=33).astype(np.float32).astype(BF16),
            "model.layers.61.eh_proj.weight": fp8_weight(128, 256, 2),
            "model.layers.61.eh_proj.weight_scale_inv": scales(128, 256, 2),
        },
        SHARD_2: {
            # The scale of a weight in the other shard.
            "model.layers.0.mlp.gate_proj.weight_scale_inv": scales(576, 300, 1),
            "lm_head.weight": rng.normal(size=(4, 8)).astype(np.float16),
        },
    }


def test_all_codes_have_the_values_of_ml_dtypes() -> None:
    theirs = np.arange(256, dtype=np.uint8).view(FP8).astype(np.float32)
    assert np.array_equal(e4m3fn_values(), theirs, equal_nan=True)
    assert np.array_equal(np.signbit(e4m3fn_values()), np.signbit(theirs))


def test_rounding_is_to_nearest_even_for_every_upper_half_and_tie() -> None:
    upper = np.arange(0x10000, dtype=np.uint32) << 16
    for lower in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        values = (upper | np.uint32(lower)).view(np.float32)
        with np.errstate(all="ignore"):
            assert bits_equal(to_bf16(values), values.astype(BF16).view(np.uint16)), hex(lower)


@pytest.mark.parametrize("shape", [(1, 1), (128, 128), (576, 7168 // 8), (129, 257), (300, 5)])
@pytest.mark.parametrize("block", [(128, 128), (1, 32), (64, 16)])
def test_dequantise_is_bit_exact(shape: tuple[int, int], block: tuple[int, int]) -> None:
    weight, scale = fp8_weight(*shape), scales(*shape, block=block)
    assert bits_equal(dequantise(weight.view(np.uint8), scale, *block), reference(weight, scale, block))


def test_a_folder_is_converted_as_a_whole(tmp_path: Path) -> None:
    source, target = tmp_path / "fp8", tmp_path / "bf16"
    shards = two_shards()
    write_checkpoint(source, shards)
    manifest, changed = convert(source, target)
    assert changed
    first, second = load(target / SHARD_1), load(target / SHARD_2)
    gate = "model.layers.0.mlp.gate_proj.weight"
    assert bits_equal(
        first[gate].view(np.uint16), reference(shards[SHARD_1][gate], shards[SHARD_2][gate + "_scale_inv"])
    )
    mtp = "model.layers.61.eh_proj.weight"
    assert bits_equal(
        first[mtp].view(np.uint16), reference(shards[SHARD_1][mtp], shards[SHARD_1][mtp + "_scale_inv"])
    )
    for name in ("model.layers.0.mlp.gate.e_score_correction_bias", "model.norm.weight"):
        assert first[name].dtype == shards[SHARD_1][name].dtype
        assert first[name].tobytes() == shards[SHARD_1][name].tobytes()
    assert set(second) == {"lm_head.weight"}
    assert "quantization_config" not in json.loads((target / "config.json").read_text())
    assert (target / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    assert (target / "inference" / "model.py").is_file()
    assert not (target / ".cache").exists()
    index = json.loads((target / "model.safetensors.index.json").read_text())
    tensors = {**first, **second}
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in tensors.values())
    assert index["weight_map"] == {name: SHARD_1 if name in first else SHARD_2 for name in sorted(tensors)}
    assert set(manifest.files) == {
        *(SHARD_1, SHARD_2, "model.safetensors.index.json"),
        *("config.json", "tokenizer.json", "inference/model.py"),
    }


def test_the_shard_is_the_file_that_the_safetensors_library_writes(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "fp8", two_shards())
    convert(tmp_path / "fp8", tmp_path / "bf16")
    save_file(load(tmp_path / "bf16" / SHARD_1), tmp_path / "theirs", metadata={"format": "pt"})
    assert (tmp_path / "bf16" / SHARD_1).read_bytes() == (tmp_path / "theirs").read_bytes()


def test_bf16_scales(tmp_path: Path) -> None:
    weight = fp8_weight(200, 130)
    scale = scales(200, 130).astype(BF16)
    write_checkpoint(
        tmp_path / "fp8", {"model.safetensors": {"a.weight": weight, "a.weight_scale_inv": scale}}
    )
    convert(tmp_path / "fp8", tmp_path / "bf16")
    ours = load(tmp_path / "bf16" / "model.safetensors")["a.weight"].view(np.uint16)
    assert bits_equal(ours, reference(weight, scale))


def test_a_nested_quantization_config_is_read_and_stripped(tmp_path: Path) -> None:
    quantization = {"quant_method": "fp8", "weight_block_size": [64, 16]}
    weight, scale = fp8_weight(70, 20), scales(70, 20, block=(64, 16))
    config = {"text_config": {"hidden_size": 8, "quantization_config": quantization}}
    tensors = {"a.weight": weight, "a.weight_scale_inv": scale}
    write_checkpoint(tmp_path / "fp8", {"model.safetensors": tensors}, config)
    convert(tmp_path / "fp8", tmp_path / "bf16")
    assert json.loads((tmp_path / "bf16" / "config.json").read_text()) == {"text_config": {"hidden_size": 8}}
    ours = load(tmp_path / "bf16" / "model.safetensors")["a.weight"].view(np.uint16)
    assert bits_equal(ours, reference(weight, scale, (64, 16)))


W, S = fp8_weight(128, 128), scales(128, 128)
REFUSED: dict[str, tuple[dict[str, Array], str]] = {
    "missing scale": ({"a.weight": W}, "a.weight: its scale a.weight_scale_inv is in no shard"),
    "orphan scale": ({"a.weight_scale_inv": S}, "a.weight_scale_inv: it is a scale without an FP8 weight"),
    "unknown suffix": ({"a.weight": W, "a.weight_scale": S}, "a.weight_scale: its name says"),
    "packed FP4": ({"a.weight_packed": W.view(np.uint8)}, "a.weight_packed: its name says"),
    "wrong scale shape": (
        {"a.weight": W, "a.weight_scale_inv": scales(256, 128)},
        r"its shape is \[2, 1\]; \[128, 128\].*needs \[1, 1\]",
    ),
    "e5m2": ({"a.weight": W.view(np.uint8).view(ml_dtypes.float8_e5m2)}, "F8_E5M2"),
    "fp16 scale": ({"a.weight": W, "a.weight_scale_inv": np.ones((1, 1), np.float16)}, "a scale of type F16"),
    "three dimensions": (
        {"a.weight": W.reshape(2, 64, 128), "a.weight_scale_inv": S.reshape(1, 1, 1)},
        "shape \\[2, 64, 128\\]",
    ),
    "nothing to do": ({"a.weight": S}, "no FP8 tensor"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_understood_is_refused_with_the_tensor(case: str, tmp_path: Path) -> None:
    tensors, message = REFUSED[case]
    write_checkpoint(tmp_path / "fp8", {"model.safetensors": tensors})
    with pytest.raises(InputError, match=message):
        convert(tmp_path / "fp8", tmp_path / "bf16")
    assert not (tmp_path / "bf16").exists()


def test_e8m0_scales_are_refused(tmp_path: Path) -> None:
    write_checkpoint(
        tmp_path / "fp8",
        {"model.safetensors": {"a.weight": W, "a.weight_scale_inv": np.ones((1, 4), np.uint8)}},
    )
    path = tmp_path / "fp8" / "model.safetensors"
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + length].replace(b'"U8"', b'"F8_E8M0"').rstrip()
    path.write_bytes(len(header).to_bytes(8, "little") + header + raw[8 + length :])
    with pytest.raises(InputError, match=r"a\.weight_scale_inv: a scale of type F8_E8M0"):
        convert(tmp_path / "fp8", tmp_path / "bf16")


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        (None, "not quantised"),
        ({"quant_method": "awq"}, "awq"),
        ({"quant_method": "fp8", "fmt": "e5m2", "weight_block_size": [128, 128]}, "e5m2"),
        ({"quant_method": "fp8"}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
    ],
)
def test_a_quantization_config_that_is_not_understood(
    quantization: object, message: str, tmp_path: Path
) -> None:
    config = {} if quantization is None else {"quantization_config": quantization}
    write_checkpoint(
        tmp_path / "fp8", {"model.safetensors": {"a.weight": W, "a.weight_scale_inv": S}}, config
    )
    with pytest.raises(InputError, match=message):
        convert(tmp_path / "fp8", tmp_path / "bf16")


def test_a_truncated_shard_is_named_with_its_bytes(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "fp8", two_shards())
    path = tmp_path / "fp8" / SHARD_2
    whole = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(whole - 5)
    with pytest.raises(
        NotReadyError, match=f"{SHARD_2} is truncated: expected {whole} bytes, found {whole - 5}"
    ):
        convert(tmp_path / "fp8", tmp_path / "bf16")


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "fp8", two_shards())
    first, _ = convert(tmp_path / "fp8", tmp_path / "bf16")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "bf16").rglob("*")}
    second, changed = convert(tmp_path / "fp8", tmp_path / "bf16")
    assert (second, changed) == (first, False)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "bf16").rglob("*")} == times


@pytest.mark.parametrize("name", [SHARD_1, "tokenizer.json", "config.json"])
def test_a_spoilt_file_is_made_again_and_the_folder_complete(name: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "fp8", two_shards())
    first, _ = convert(tmp_path / "fp8", tmp_path / "bf16")
    with (tmp_path / "bf16" / name).open("r+b") as file:
        file.write(b"spoilt")
    second, changed = convert(tmp_path / "fp8", tmp_path / "bf16")
    assert (second, changed) == (first, True)
    assert verify(tmp_path / "bf16", deep=True) == first


def test_a_stopped_run_is_not_complete_and_goes_on_with_the_shard_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "fp8", two_shards())
    whole, _ = convert(tmp_path / "fp8", tmp_path / "whole")
    converted: list[str] = []
    real = convert_module.convert_shard

    def stop_at_the_second(recipe, target):  # type: ignore[no-untyped-def]
        if converted:
            raise KeyboardInterrupt
        converted.append(target.name)
        return real(recipe, target)

    monkeypatch.setattr(convert_module, "convert_shard", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        convert(tmp_path / "fp8", tmp_path / "bf16", processes=1)
    assert not (tmp_path / "bf16" / "headfirst-manifest.json").exists()

    monkeypatch.setattr(convert_module, "convert_shard", lambda *a: converted.append(a[1].name) or real(*a))
    again, _ = convert(tmp_path / "fp8", tmp_path / "bf16", processes=1)
    assert converted == [SHARD_1, SHARD_2]
    assert again == whole


def test_a_changed_scale_shard_redoes_what_depends_on_it(tmp_path: Path) -> None:
    shards = two_shards()
    write_checkpoint(tmp_path / "fp8", shards)
    convert(tmp_path / "fp8", tmp_path / "bf16")
    gate = "model.layers.0.mlp.gate_proj.weight"
    shards[SHARD_2][gate + "_scale_inv"] = scales(576, 300, 99)
    write_checkpoint(tmp_path / "fp8", {SHARD_2: shards[SHARD_2]} | {SHARD_1: shards[SHARD_1]})
    _, changed = convert(tmp_path / "fp8", tmp_path / "bf16")
    assert changed
    ours = load(tmp_path / "bf16" / SHARD_1)[gate].view(np.uint16)
    assert bits_equal(ours, reference(shards[SHARD_1][gate], scales(576, 300, 99)))


def test_a_shard_that_the_source_no_longer_has_is_removed(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "fp8", two_shards())
    convert(tmp_path / "fp8", tmp_path / "bf16")
    for name in (SHARD_1, SHARD_2):
        (tmp_path / "fp8" / name).unlink()
    write_checkpoint(tmp_path / "fp8", {"model.safetensors": {"a.weight": W, "a.weight_scale_inv": S}})
    convert(tmp_path / "fp8", tmp_path / "bf16")
    assert [path.name for path in (tmp_path / "bf16").glob("*.safetensors")] == ["model.safetensors"]


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "fp8", two_shards())
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match="not made by headfirst"):
        convert(tmp_path / "fp8", tmp_path / "home")
    with pytest.raises(InputError, match="same folder"):
        convert(tmp_path / "fp8", tmp_path / "fp8")


def test_processes_give_the_same_bytes(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "fp8", two_shards())
    one, _ = convert(tmp_path / "fp8", tmp_path / "one", processes=1)
    two, _ = convert(tmp_path / "fp8", tmp_path / "two", processes=2)
    assert one.digest == two.digest


def test_no_space_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path / "fp8", two_shards())
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("headfirst.weights.files.shutil.disk_usage", lambda _path: usage)
    with pytest.raises(NotReadyError, match="no space to convert to BF16: it needs"):
        convert(tmp_path / "fp8", tmp_path / "bf16")
    assert not list((tmp_path / "bf16").glob("*.safetensors"))
