"""Conversion that is stopped, killed, repeated, spread over threads, or removes its source on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from headfirst.common.convertible import read_format
from headfirst.common.errors import NotReadyError
from headfirst.common.safetensors_file import read_shard
from headfirst.node.weights.convert import convert_folder as convert_module
from headfirst.node.weights.convert.convert_folder import convert
from headfirst.node.weights.convert.convert_shard import STRIP, Stopped, convert_shard
from headfirst.node.weights.convert.recipe import make_recipe
from headfirst.node.weights.proof.verify import verify
from weights_checkpoints import (
    SHARD_1,
    SHARD_2,
    Array,
    bits_equal,
    fp8_weight,
    load,
    reference,
    scales,
    two_shards,
    write_checkpoint,
)

BLOCKS = read_format({"quant_method": "fp8", "weight_block_size": [128, 128]})
MANIFEST = "headfirst-manifest.json"


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


def test_threads_give_the_same_bytes(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "fp8", two_shards())
    one, _ = convert(tmp_path / "fp8", tmp_path / "one", threads=1)
    two, _ = convert(tmp_path / "fp8", tmp_path / "two", threads=2)
    assert one.digest == two.digest


def large_shards(count: int, rows: int) -> dict[str, dict[str, Array]]:
    return {
        f"model-{number:05}.safetensors": {
            f"{number}.weight": fp8_weight(rows, 2048, number),
            f"{number}.weight_scale_inv": scales(rows, 2048, number),
        }
        for number in range(count)
    }


def test_a_stopped_run_is_not_complete_and_goes_on_with_the_shard_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "fp8", two_shards())
    whole, _ = convert(tmp_path / "fp8", tmp_path / "whole")
    converted: list[str] = []
    real = convert_module.convert_shard

    def stop_at_the_second(recipe, target, **hooks):  # type: ignore[no-untyped-def]
        if converted:
            raise KeyboardInterrupt
        converted.append(target.name)
        return real(recipe, target, **hooks)

    monkeypatch.setattr(convert_module, "convert_shard", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        convert(tmp_path / "fp8", tmp_path / "bf16", threads=1)
    assert not (tmp_path / "bf16" / MANIFEST).exists()

    monkeypatch.setattr(
        convert_module, "convert_shard", lambda *a, **k: converted.append(a[1].name) or real(*a, **k)
    )
    again, _ = convert(tmp_path / "fp8", tmp_path / "bf16", threads=1)
    assert converted == [SHARD_1, SHARD_2]
    assert again == whole


def test_a_shard_that_is_told_to_stop_leaves_nothing(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "fp8", large_shards(1, 3 * STRIP // 2048))
    recipe = make_recipe(read_shard(tmp_path / "fp8" / "model-00000.safetensors"), [], BLOCKS)
    assert recipe is not None
    told: list[int] = []
    with pytest.raises(Stopped):
        convert_shard(recipe, tmp_path / "out", seen=told.append, stopped=lambda: len(told) == 2)
    assert told == [STRIP, STRIP]
    assert not list(tmp_path.glob("*out*")) and not list(tmp_path.glob(".*out*"))


def test_a_source_that_shrinks_meanwhile_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fp8" / SHARD_1
    tensors = {"a.weight": fp8_weight(128, 128), "a.weight_scale_inv": scales(128, 128)}
    write_checkpoint(tmp_path / "fp8", {SHARD_1: tensors})
    recipe = make_recipe(read_shard(path), [], BLOCKS)
    assert recipe is not None
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 10)
    with pytest.raises(NotReadyError, match=f"shard {SHARD_1} became shorter while it was read"):
        convert_shard(recipe, tmp_path / "out")
    assert not (tmp_path / "out").exists()


RUN = "import sys; from headfirst.node.weights.cli import main; main(sys.argv[1:])"


@pytest.mark.parametrize("options", [[], ["--drop-source"]])
def test_a_killed_process_does_not_lose_finished_shards(options: list[str], tmp_path: Path) -> None:
    source, target = tmp_path / "fp8", tmp_path / "bf16"
    write_checkpoint(source, large_shards(12, 4096))
    whole, _ = convert(source, tmp_path / "whole")
    command = [sys.executable, "-c", RUN, "convert", str(source), str(target), "--threads", "1", *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list(target.glob("*.safetensors"))) < 4:
        assert killed.poll() is None and time.monotonic() < deadline
        time.sleep(0.001)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not (target / MANIFEST).exists()
    finished = {path: path.stat().st_mtime_ns for path in target.glob("*.safetensors")}
    assert len(finished) < 12
    after, _ = convert(source, target, threads=2, keep_source=not options)
    assert after == whole
    redone = [path for path, written in finished.items() if path.stat().st_mtime_ns != written]
    assert len(redone) <= 2  # one renamed and not yet in the notes, and the next one meanwhile
    assert verify(target, deep=True) == whole
    assert len(list(source.glob("*.safetensors"))) == (0 if options else 12)


def test_the_source_goes_shard_by_shard_and_the_result_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "fp8", tmp_path / "bf16"
    write_checkpoint(source, two_shards())
    whole, _ = convert(source, tmp_path / "whole")
    left: list[list[str]] = []
    real = convert_module.convert_shard

    def look(*arguments, **hooks):  # type: ignore[no-untyped-def]
        left.append(sorted(path.name for path in source.glob("*.safetensors")))
        return real(*arguments, **hooks)

    monkeypatch.setattr(convert_module, "convert_shard", look)
    after, changed = convert(source, target, threads=1, keep_source=False)
    assert (after, changed) == (whole, True)
    assert left[0] == [SHARD_1, SHARD_2]  # SHARD_2 has a scale of SHARD_1: it must outlive it
    assert not list(source.glob("*.safetensors"))
    assert (source / "config.json").is_file()
    again, changed = convert(source, target, keep_source=False)
    assert (again, changed) == (whole, False)
    (target / SHARD_2).unlink()
    with pytest.raises(NotReadyError, match=f"1 source shard.*gone.*{SHARD_2}"):
        convert(source, target)


def test_a_single_file_without_index_can_be_dropped_too(tmp_path: Path) -> None:
    source, target = tmp_path / "fp8", tmp_path / "bf16"
    tensors = {"a.weight": fp8_weight(40, 40), "a.weight_scale_inv": scales(40, 40)}
    write_checkpoint(source, {"model.safetensors": tensors})
    (source / "model.safetensors.index.json").unlink()
    first, _ = convert(source, target, keep_source=False)
    assert not (source / "model.safetensors").exists()
    assert convert(source, target) == (first, False)
