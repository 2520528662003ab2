"""A checkpoint in a folder, whole and broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.control.checkpoints.describe import describe
from model_files import CONFIG, SHARDS, write


def test_folder_is_described_from_headers(tmp_path: Path) -> None:
    model = describe(str(write(tmp_path / "demo")), "path")
    assert model.dtype == "fp8"
    assert model.weight_block_size == (128, 128)
    assert model.mla is not None
    assert model.mla.kv_lora_rank == 64
    assert model.moe is not None
    assert (model.moe.experts, model.moe.first_dense_layers) == (4, 1)
    assert model.bytes_by_dtype == {"BF16": 128, "F8_E4M3": 1024, "F32": 24}
    assert model.total_bytes == sum(map(len, SHARDS.values()))
    assert model.bf16_bytes == model.total_bytes + 1024 - 16
    assert [shard.name for shard in model.shards] == sorted(SHARDS)
    assert model.source == "folder"


def test_left_over_quantization_config_does_not_make_bf16_weights_fp8(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "model.safetensors.index.json").unlink()
    (folder / "model-00001-of-00002.safetensors").unlink()
    assert describe(str(folder), "path").dtype == "bf16"


def test_single_file_without_index(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(next(iter(SHARDS.values())))
    assert [shard.name for shard in describe(str(tmp_path), "path").shards] == ["model.safetensors"]


def _no_weights(folder: Path) -> None:
    for path in [*folder.glob("*.safetensors"), folder / "model.safetensors.index.json"]:
        path.unlink()


def _cut(folder: Path, keep: int) -> None:
    path = folder / "model-00001-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:keep])


@pytest.mark.parametrize(
    ("breaking", "error", "words"),
    [
        (lambda f: (f / "config.json").unlink(), InputError, ["config.json is missing"]),
        (lambda f: (f / "config.json").write_text("{"), InputError, ["config.json", "not valid JSON"]),
        (lambda f: (f / "config.json").write_text("[" * 10**5), HeadfirstError, ["nested more than 64 deep"]),
        (lambda f: (f / "hf_quant_config.json").write_text("[]"), HeadfirstError, ["no JSON object"]),
        (_no_weights, InputError, ["no weights", "git lfs pull"]),
        (
            lambda f: (f / "model-00002-of-00002.safetensors").unlink(),
            NotReadyError,
            ["index names 2 shards", "model-00002-of-00002.safetensors", "run it again"],
        ),
        (lambda f: _cut(f, -3), NotReadyError, ["model-00001-of-00002.safetensors", "truncated", "fetch it"]),
        (lambda f: _cut(f, 60), NotReadyError, ["truncated", "fetch it again"]),
        (lambda f: _cut(f, 4), NotReadyError, ["truncated", "expected 8 bytes, found 4"]),
        (
            lambda f: (f / "model-00001-of-00002.safetensors").open("ab").write(b"x"),
            NotReadyError,
            ["longer than its header declares"],
        ),
    ],
)
def test_broken_folders_say_what_where_and_what_next(
    tmp_path: Path, breaking: object, error: type[HeadfirstError], words: list[str]
) -> None:
    folder = write(tmp_path)
    breaking(folder)  # type: ignore[operator]
    with pytest.raises(error) as raised:
        describe(str(folder), "path")
    for word in words:
        assert word in str(raised.value)
    assert str(folder) in str(raised.value)
    assert raised.value.hint


def test_missing_folder() -> None:
    with pytest.raises(InputError, match="/no/such/model does not exist") as raised:
        describe("/no/such/model", "path")
    assert raised.value.hint is not None


def test_missing_key_of_config_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "config.json").write_text(json.dumps({k: v for k, v in CONFIG.items() if k != "vocab_size"}))
    with pytest.raises(InputError, match="'vocab_size'"):
        describe(str(folder), "path")


def test_unsupported_dtype_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path)
    path = folder / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"BF16"', b'"F4_X"'))
    with pytest.raises(NotReadyError, match="F4_X"):
        describe(str(folder), "path")
