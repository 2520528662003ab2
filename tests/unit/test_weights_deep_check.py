"""The independent second look at converted shards: it agrees with ml_dtypes, and finds what is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from headfirst.common.safetensors_file import read_shard
from headfirst.node.weights.convert.convert_folder import convert
from headfirst.node.weights.proof.deep_check import check_samples, equal_bits, expected_bits
from headfirst.node.weights.proof.samples import load_samples
from weights_checkpoints import (
    BF16,
    FP8,
    SHARD_1,
    SHARD_2,
    bits_equal,
    fp8_weight,
    scales,
    two_shards,
    write_checkpoint,
)

CODES = np.arange(256, dtype=np.uint8)
SINGLE = "model.safetensors"


@pytest.mark.parametrize("mantissa", [0, 1, 0x8000, 0x5A5A5A, 0x7FFFFF])
def test_its_arithmetic_is_that_of_ml_dtypes(mantissa: int) -> None:
    values = CODES.view(FP8).astype(np.float32)
    for upper in range(512):
        pattern = upper << 23 | mantissa
        scale = np.array(pattern, np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            theirs = (values * scale).astype(BF16).view(np.uint16)
        assert bits_equal(expected_bits(CODES.tobytes(), pattern), theirs), hex(pattern)


def test_equal_bits_tells_a_nan_from_a_number_and_a_zero_from_its_negative() -> None:
    def bits(*values: int) -> np.ndarray:
        return np.array(values, np.uint16)

    assert equal_bits(bits(0x7FC0, 0x3F80), bits(0xFFFF, 0x3F80))
    assert not equal_bits(bits(0x7F80), bits(0x7FC0))
    assert not equal_bits(bits(0), bits(0x8000))


def test_a_good_conversion_passes_with_its_source_and_without(tmp_path: Path) -> None:
    source, target = tmp_path / "fp8", tmp_path / "bf16"
    write_checkpoint(source, two_shards())
    convert(source, target, keep_source=False)
    assert {saved.shard: len(saved.samples) for saved in load_samples(target)} == {SHARD_1: 2, SHARD_2: 0}
    assert check_samples(target) == {}
    write_checkpoint(source, two_shards())
    os.utime(source / SHARD_1, ns=(1, 1))
    assert check_samples(target) == {}


def test_samples_are_the_same_each_time(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "fp8", two_shards())
    for name in ("one", "two"):
        convert(tmp_path / "fp8", tmp_path / name)
    assert load_samples(tmp_path / "one") == load_samples(tmp_path / "two")


@pytest.mark.parametrize("scale_type", [np.float32, BF16])
def test_a_wrong_value_in_a_sampled_block_is_found(scale_type: type, tmp_path: Path) -> None:
    source, target = tmp_path / "fp8", tmp_path / "bf16"
    tensors = {"a.weight": fp8_weight(300, 200), "a.weight_scale_inv": scales(300, 200).astype(scale_type)}
    write_checkpoint(source, {SINGLE: tensors})
    convert(source, target, keep_source=False)
    assert check_samples(target) == {}
    (sample, _) = load_samples(target)[0].samples
    tensor = read_shard(target / SINGLE).tensors["a.weight"]
    with (target / SINGLE).open("r+b") as file:
        file.seek(tensor.start + 2 * (sample.row * 200 + sample.column))
        low = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([low[0] ^ 1]))
    wrong = check_samples(target)
    assert list(wrong) == [SINGLE]
    assert f"row {sample.row}, column {sample.column} of tensor a.weight" in wrong[SINGLE]


def test_fresh_blocks_of_a_source_that_is_still_there_are_compared(tmp_path: Path) -> None:
    """One wrong block of nine, and not one that was kept: some draw of blocks meets it."""
    source, target = tmp_path / "fp8", tmp_path / "bf16"
    write_checkpoint(
        source, {SINGLE: {"a.weight": fp8_weight(384, 384), "a.weight_scale_inv": scales(384, 384)}}
    )
    convert(source, target)
    kept = {(sample.row, sample.column) for sample in load_samples(target)[0].samples}
    row, column = next((r, c) for r in (0, 128, 256) for c in (0, 128, 256) if (r, c) not in kept)
    tensor = read_shard(target / SINGLE).tensors["a.weight"]
    with (target / SINGLE).open("r+b") as file:
        file.seek(tensor.start + 2 * (row * 384 + column))
        file.write(b"\x12\x34" * 8)
    assert any(check_samples(target) for _ in range(200))
