"""A file that was wrong and is repaired is a change: it is named, with the ranks that have read it before."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.node.weights.fetch.fetching import FetchRequest
from headfirst.node.weights.proof.verify import verify
from headfirst.node.weights.status import Status, look
from transfers import Members
from weights_checkpoints import SHARD_1, two_shards, write_checkpoint
from weights_role import role


def state(folder: Path, source: Path) -> Status:
    return look(FetchRequest("path", str(source)), folder, None)


def spoil(path: Path) -> None:
    """Other bytes in a file of its own: the source's may be linked here."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize("spoilt", [0, 1])
def test_a_repaired_file_is_reported_until_that_is_done(spoilt: int, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_checkpoint(source, two_shards())
    members = Members(tmp_path, 2)
    command = ["@/fp8", "--model", str(source), "--from", "path"]
    members.run(*command)
    folder = members.home(spoilt) / "fp8"
    spoil(folder / SHARD_1)
    with pytest.raises(NotReadyError, match=SHARD_1):
        verify(folder)
    assert (state(folder, source)["changed"], state(folder, source)["repaired"]) == ([SHARD_1], [])
    members.run(*command)
    assert (state(folder, source)["changed"], state(folder, source)["repaired"]) == ([], [SHARD_1])
    verify(folder)  # as a run does that was interrupted before it reported
    assert state(folder, source)["repaired"] == [SHARD_1]
    (folder / ".headfirst" / "wrong.json").unlink()
    assert state(folder, source)["repaired"] == []


def test_a_file_that_has_another_time_only_is_neither_wrong_nor_repaired(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_checkpoint(source, two_shards())
    members = Members(tmp_path, 1)
    members.run("@/fp8", "--model", str(source), "--from", "path")
    folder = members.home(0) / "fp8"
    (folder / SHARD_1).touch()
    assert state(folder, source)["changed"] == [SHARD_1]
    verify(folder)
    assert (state(folder, source)["changed"], state(folder, source)["repaired"]) == ([], [])


def test_the_ranks_that_run_are_named_with_what_starts_them_again() -> None:
    readers = {"engine": "sudo docker stop engine", "other": "sudo docker stop other"}
    repaired = {"repaired": [f"{number}.safetensors" for number in range(7)]}
    on_host = role({"a": repaired}, dir="/models", readers=readers)
    finding = on_host.decide(running=["engine"])["finding"]
    assert finding["what"].startswith("7 file(s) of /models/m were wrong and are repaired: 0.safetensors, 1")
    assert "engine started before" in finding["fix"] and "on a: sudo docker stop engine" in finding["fix"]
    assert "other" not in finding["fix"]
    assert on_host.decide()["finding"]["fix"] == ""
    assert on_host.decide(check=True)["finding"] == role({"a": {}}).decide()["finding"] == {}
