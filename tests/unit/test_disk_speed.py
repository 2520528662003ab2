"""How fast a disk reads: files of this machine, read for real."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import disk_speed

MB = 1 << 20


def put(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
        if size:
            os.posix_fallocate(file.fileno(), 0, size)
    return path


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each read gave, as long as the test runs."""
    counts: list[int] = []
    readv = os.readv

    def counted(file: int, buffers: list[bytearray]) -> int:
        counts.append(readv(file, buffers))
        return counts[-1]

    monkeypatch.setattr(disk_speed.os, "readv", counted)
    return counts


def test_the_largest_file_is_read_to_its_end(tmp_path: Path, read: list[int]) -> None:
    put(tmp_path / "a" / "small", MB)
    put(tmp_path / "b" / "large", 70 * MB + 5)
    before = sorted(path for path in tmp_path.rglob("*"))
    assert disk_speed.read_rate(str(tmp_path)) > MB
    assert sum(read) == 70 * MB + 5
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_no_more_than_a_part_of_a_huge_file_is_read(
    tmp_path: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "huge", 96 * MB)
    monkeypatch.setattr(disk_speed, "MOST_BYTES", 40 * MB)
    assert disk_speed.read_rate(str(tmp_path)) > 0
    assert sum(read) == 48 * MB


def test_a_slow_disk_is_left_after_two_seconds(
    tmp_path: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "huge", 96 * MB)
    clock = iter([0.0, 0.1, 1.9, 2.1, 2.2])
    monkeypatch.setattr(disk_speed.time, "monotonic", lambda: next(clock))
    assert disk_speed.read_rate(str(tmp_path)) == int(32 * MB / 2.2)
    assert len(read) == 2


@pytest.mark.parametrize("size", [0, MB])
def test_nothing_that_tells_of_the_disk(tmp_path: Path, read: list[int], size: int) -> None:
    put(tmp_path / "small", size)
    assert disk_speed.read_rate(str(tmp_path)) == 0
    assert disk_speed.read_rate(str(tmp_path / "missing")) == 0
    assert read == []


def test_a_filesystem_without_direct_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "file", 64 * MB)

    def refuse(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(disk_speed.os, "open", refuse)
    assert disk_speed.read_rate(str(tmp_path)) == 0
