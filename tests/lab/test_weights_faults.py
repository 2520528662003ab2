"""A transfer between nodes with shaped links, and everything that breaks in the midst of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from headfirst.weights.files import list_files
from headfirst.weights.verify import verify
from lan_members import LanMembers, counted
from netns import Lan
from weights_checkpoints import fp8_weight, scales, write_checkpoint

pytestmark = pytest.mark.lab

MB = 1_000_000
SHARDS, SHARD = 10, 10 * MB
WINDOW = 2
"""Shards that a node receives at a time."""
HEADERS = 1.05
"""Bytes on a wire to one byte of payload, at most."""


@pytest.fixture(scope="module")
def lan() -> Iterator[Lan]:
    with Lan(4, "100mbit") as lan:
        yield lan


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten shards of 10 MB: nine seconds on a link."""
    folder = tmp_path_factory.mktemp("source")
    rows = SHARD // 2048 // 128 * 128
    shards = {
        f"model-{number:02}.safetensors": {
            f"{number}.weight": fp8_weight(rows, 2048, number),
            f"{number}.weight_scale_inv": scales(rows, 2048, number),
        }
        for number in range(SHARDS)
    }
    write_checkpoint(folder, shards)
    return folder


@pytest.fixture
def size(source: Path) -> int:
    return sum((source / name).stat().st_size for name in list_files(source))


@pytest.fixture
def members(lan: Lan, tmp_path: Path) -> Iterator[LanMembers]:
    members = LanMembers(tmp_path, 4, lan=lan)
    yield members
    for process in members.running.values():
        process.kill()
        process.wait()


def fetching(source: Path) -> list[str]:
    return ["@/fp8", "--model", str(source), "--from", "path"]


def test_a_relay_that_is_killed_and_started_again_goes_on(
    members: LanMembers, source: Path, size: int
) -> None:
    with counted(members) as wires:
        members.start_all(fetching(source))
        members.await_done(1, size / 2)
        members.kill(1)
        members.start(1, fetching(source))
        members.end_all()
    assert len(members.digests()) == 1
    assert wires[0][1] < HEADERS * size + WINDOW * SHARD, "one copy left the origin"
    assert wires[1][0] < HEADERS * size + WINDOW * SHARD
    assert wires[3][0] < HEADERS * size + WINDOW * SHARD
    print([[n / size for n in wire] for wire in wires])
    verify(members.home(1) / "fp8", deep=True)
