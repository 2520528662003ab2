"""A folder FP8 → BF16: values against ml_dtypes, files against the safetensors library, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from headfirst.common.errors import InputError, NotReadyError
from headfirst.node.weights.convert.convert_folder import convert
from safetensors.numpy import save_file
from weights_checkpoints import (
    SHARD_1,
    SHARD_2,
    bits_equal,
    fp8_weight,
    load,
    reference,
    scales,
    two_shards,
    write_checkpoint,
)


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


def test_a_shard_that_the_source_no_longer_has_is_removed(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "fp8", two_shards())
    convert(tmp_path / "fp8", tmp_path / "bf16")
    for name in (SHARD_1, SHARD_2):
        (tmp_path / "fp8" / name).unlink()
    write_checkpoint(
        tmp_path / "fp8",
        {"model.safetensors": {"a.weight": fp8_weight(9, 9), "a.weight_scale_inv": scales(9, 9)}},
    )
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


def test_a_shard_of_scales_alone_leaves_no_file(tmp_path: Path) -> None:
    weight, scale = fp8_weight(130, 40), scales(130, 40)
    shards = {SHARD_1: {"a.weight": weight}, SHARD_2: {"a.weight_scale_inv": scale}}
    write_checkpoint(tmp_path / "fp8", shards)
    convert(tmp_path / "fp8", tmp_path / "bf16")
    assert [path.name for path in (tmp_path / "bf16").glob("*.safetensors")] == [SHARD_1]
    assert bits_equal(load(tmp_path / "bf16" / SHARD_1)["a.weight"].view(np.uint16), reference(weight, scale))


def test_empty_tensors_and_scalars_pass_through(tmp_path: Path) -> None:
    tensors = {
        "a.weight": fp8_weight(9, 9),
        "a.weight_scale_inv": scales(9, 9),
        "none.weight": np.zeros((0, 8), np.float32),
        "step": np.array(7, np.int64),
    }
    write_checkpoint(tmp_path / "fp8", {"model.safetensors": tensors})
    convert(tmp_path / "fp8", tmp_path / "bf16")
    found = load(tmp_path / "bf16" / "model.safetensors")
    assert found["step"] == 7
    assert found["none.weight"].shape == (0, 8)
