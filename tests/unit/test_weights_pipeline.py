"""A model comes to all members: fetched once, passed on, converted everywhere; resumed, fixed, refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from headfirst.node.weights.files import list_files
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.hashing import PIECE
from headfirst.node.weights.proof.verify import verify
from transfers import LIMIT_S, Members, ended, outcomes
from weights_checkpoints import SHARD_1, SHARD_2, fp8_weight, scales, two_shards, write_checkpoint


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "source", two_shards())
    return tmp_path / "source"


def fetching(source: Path) -> list[str]:
    return ["@/fp8", "--model", str(source), "--from", "path"]


def test_all_members_serve_the_same_and_the_fp8_copies_go(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 4)
    results = members.run(*fetching(source), "--convert-to", "@/bf16")
    assert len({result["digest"] for result in results}) == 1
    assert all(result["changed"] for result in results)
    assert results[0]["received"] == 0
    for index in range(4):
        home = members.home(index)
        manifest = verify(home / "bf16", deep=True)
        assert manifest.origin["model"] == str(source)
        assert not list((home / "fp8").glob("*.safetensors"))
        assert not list((home / "fp8" / ".headfirst" / "received").glob("*"))
    assert (source / SHARD_1).is_file()


def test_kept_copies_are_the_source_and_a_second_run_sends_nothing(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 3)
    command = [*fetching(source), "--convert-to", "@/bf16", "--keep-fp8"]
    members.run(*command)
    for index in range(3):
        folder = members.home(index) / "fp8"
        assert {name: (folder / name).read_bytes() for name in list_files(source)} == {
            name: (source / name).read_bytes() for name in list_files(source)
        }
        verify(folder, deep=True)
    again = members.run(*command)
    assert [(result["changed"], result["received"]) for result in again] == [(False, 0)] * 3


def test_one_member_alone_needs_no_network_and_no_token(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 1, token="")
    [result] = members.run(*fetching(source), "--convert-to", "@/bf16")
    assert verify(members.home(0) / "bf16", deep=True).digest == result["digest"]


def test_a_served_copy_is_mended_by_neighbours_piece_by_piece(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "source", {"model.safetensors": {"a.weight": fp8_weight(4096, 512)}})
    members = Members(tmp_path, 3)
    members.run(*fetching(tmp_path / "source"))
    spoilt = members.home(1) / "fp8" / "model.safetensors"
    times = spoilt.stat()
    with spoilt.open("r+b") as file:
        file.seek(1_000_000)
        file.write(bytes(16))
    os.utime(spoilt, ns=(times.st_atime_ns, times.st_mtime_ns))
    (members.home(1) / "fp8" / ".headfirst" / "hashes.json").unlink()  # what a deep look comes to as well
    shutil.rmtree(members.home(2) / "fp8")
    results = members.run("@/fp8")
    assert 0 < results[1]["received"] <= PIECE
    assert results[2]["received"] >= spoilt.stat().st_size
    assert verify(members.home(1) / "fp8", deep=True) == verify(members.home(2) / "fp8", deep=True)


def test_a_file_that_is_linked_from_elsewhere_is_mended_as_a_copy(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 2)
    members.run(*fetching(source))
    linked = members.home(0) / "fp8" / SHARD_1
    assert linked.samefile(source / SHARD_1)
    spoilt = bytearray(linked.read_bytes())
    spoilt[-1] ^= 1
    linked.write_bytes(spoilt)
    turned = Members(tmp_path, 2)
    turned.home(0).rename(tmp_path / "was-head")
    turned.home(1).rename(turned.home(0))
    (tmp_path / "was-head").rename(turned.home(1))
    turned.run("@/fp8")
    assert verify(turned.home(1) / "fp8", deep=True) == verify(turned.home(0) / "fp8", deep=True)
    assert (source / SHARD_1).read_bytes() == spoilt


def test_a_spoilt_shard_whose_fp8_is_gone_everywhere_is_fetched_alone(tmp_path: Path) -> None:
    shards = {
        f"model-{number}.safetensors": {
            f"{number}.weight": fp8_weight(512, 512, number),
            f"{number}.weight_scale_inv": scales(512, 512, number),
        }
        for number in range(4)
    }
    write_checkpoint(tmp_path / "source", shards)
    members = Members(tmp_path, 3)
    command = [*fetching(tmp_path / "source"), "--convert-to", "@/bf16"]
    first = members.run(*command)
    for index in range(3):
        manifests.discard(members.home(index) / "bf16")
    (members.home(2) / "bf16" / "model-1.safetensors").unlink()
    again = members.run(*command)
    assert [result["digest"] for result in again] == [result["digest"] for result in first]
    size = (tmp_path / "source" / "model-1.safetensors").stat().st_size
    assert again[1]["received"] <= 1.5 * size  # the member between passes it on
    assert again[2]["received"] <= 1.5 * size
    verify(members.home(2) / "bf16", deep=True)


def test_members_hear_at_once_why_the_origin_failed(source: Path, tmp_path: Path) -> None:
    (source / SHARD_2).unlink()
    members = Members(tmp_path, 3)
    ends = outcomes(members.start(index, fetching(source)) for index in range(3))
    for index, (code, errors) in enumerate(ends):
        assert code == 3
        assert f"1 shard(s) that are not there: {SHARD_2}" in errors
        assert ("the node that brings the weights failed" in errors) == (index > 0)


def test_members_that_start_later_hear_why_the_origin_failed(source: Path, tmp_path: Path) -> None:
    (source / SHARD_2).unlink()
    members = Members(tmp_path, 3)
    for code, errors in outcomes(_start_late(members, fetching(source))):
        assert code == 3
        assert f"1 shard(s) that are not there: {SHARD_2}" in errors


def _start_late(members: Members, command: list[str]) -> Iterator[subprocess.Popen[str]]:
    yield members.start(0, command)
    time.sleep(4)
    yield from (members.start(index, command) for index in (1, 2))


def test_a_tensor_that_is_not_understood_stops_all_before_a_shard_is_converted(tmp_path: Path) -> None:
    tensors = {"a.weight": fp8_weight(128, 128), "a.weight_scale": scales(128, 128)}
    write_checkpoint(tmp_path / "source", {"model.safetensors": tensors})
    members = Members(tmp_path, 2)
    command = [*fetching(tmp_path / "source"), "--convert-to", "@/bf16"]
    for code, errors in outcomes(members.start(index, command) for index in range(2)):
        assert code != 0
        assert "a.weight_scale" in errors
    assert not list(members.home(0).glob("bf16/*.safetensors"))


def test_another_token_is_refused_and_said(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 2)
    origin = members.start(0, fetching(source))
    stranger = members.start(1, fetching(source), HEADFIRST_TRANSFER_TOKEN="guess")
    with ended(iter([origin, stranger])):
        _, errors = stranger.communicate(timeout=LIMIT_S)
    assert stranger.returncode == 3
    assert "its token differs" in errors
    assert list_files(members.home(1) / "fp8") == []


def test_somebody_elses_folder_is_left_alone(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 2)
    (members.home(1) / "fp8").mkdir(parents=True)
    (members.home(1) / "fp8" / "thesis.txt").write_text("precious")
    [(code, errors)] = outcomes(iter([members.start(1, fetching(source))]))
    assert code == 2
    assert "not made by headfirst" in errors
    assert (members.home(1) / "fp8" / "thesis.txt").exists()


def test_the_models_own_folder_is_served_in_place_and_nothing_of_it_removed(
    source: Path, tmp_path: Path
) -> None:
    members = Members(tmp_path, 2)
    before = list_files(source)
    own = [str(source), *fetching(source)[1:], "--convert-to", "@/bf16"]
    origin = members.start(0, own)
    worker = members.start(1, [*fetching(source), "--convert-to", "@/bf16"])
    for code, errors in outcomes(iter([origin, worker])):
        assert code == 0, errors
    assert set(before) <= set(list_files(source))
    assert members.result(0)["digest"] == members.result(1)["digest"]
