"""Disks that fill up, refuse or lie while a model is brought to all nodes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.node.weights.files import disk_bytes, gigabytes, list_files
from headfirst.node.weights.proof.hashing import PIECE
from headfirst.node.weights.proof.verify import verify
from lan_members import HEADERS, MB, SHARD, LanMembers, counted, fetching, fill, small_disk

pytestmark = pytest.mark.lab


def test_flipped_bytes_are_found_named_and_mended_alone(members: LanMembers, source: Path, size: int) -> None:
    members.start_all(fetching(source))
    members.end_all()
    first = members.digests()
    spoilt = members.home(2) / "fp8" / "model-04.safetensors"
    before = spoilt.stat()
    with spoilt.open("r+b") as file:
        file.seek(SHARD // 2)
        byte = file.read(1)
        file.seek(SHARD // 2)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(spoilt, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(NotReadyError, match=r"model-04\.safetensors: its hash is not the manifest's"):
        verify(members.home(2) / "fp8", deep=True)
    with counted(members) as wires:
        members.start_all(["@/fp8"])
        members.end_all()
    assert members.digests() == first
    assert [members.result(index)["received"] for index in range(4)] == [0, 0, PIECE, 0]
    assert wires[2][0] < PIECE + MB, "with all that members tell each other"
    verify(members.home(2) / "fp8", deep=True)


def test_a_disk_that_is_too_small_is_refused_before_anything_is_brought(
    members: LanMembers, source: Path, size: int
) -> None:
    with small_disk(members.home(2), size // 2), counted(members) as wires:
        members.start_all(fetching(source))
        errors = members.end(2, 3)
        assert f"it needs {gigabytes(size)}" in errors
        assert re.search(r"\d+\.\d MB are free", errors)
        members.end_all(but=[2])
        assert list_files(members.home(2) / "fp8") == []
    assert wires[2][0] < MB
    assert len(members.digests(but=[2])) == 1


def test_a_disk_that_fills_up_stops_one_member_which_goes_on_when_there_is_room(
    members: LanMembers, source: Path, size: int
) -> None:
    with small_disk(members.home(2), size + 70 * MB):
        members.start_all(fetching(source))
        members.await_done(2, size / 4)
        somebody_elses = members.home(2) / "film"
        fill(somebody_elses, leaving=size // 4)
        errors = members.end(2, 3)
        assert re.search(r"model-\d\d\.safetensors cannot be received: No space left on device", errors)
        members.end_all(but=[2])
        there = disk_bytes(members.home(2) / "fp8", list_files(source))
        somebody_elses.unlink()
        with counted(members) as wires:
            members.start_all(fetching(source))
            members.end_all()
        assert wires[2][0] < HEADERS * (size - there) + MB
        assert members.result(2)["received"] <= size - there + PIECE
        assert len(members.digests()) == 1


def test_a_folder_that_may_not_be_written_stops_one_member(members: LanMembers, source: Path) -> None:
    members.under[2] = ["setpriv", "--bounding-set=-dac_override"]  # root that permissions hold for
    (members.home(2) / "fp8" / ".headfirst").mkdir(parents=True)
    for folder in (members.home(2) / "fp8", members.home(2) / "fp8" / ".headfirst"):
        folder.chmod(0o555)
    members.start_all(fetching(source))
    errors = members.end(2, 1)
    assert "permission denied" in errors
    assert str(members.home(2) / "fp8") in errors
    members.end_all(but=[2])
    assert len(members.digests(but=[2])) == 1
