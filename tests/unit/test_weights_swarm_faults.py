"""What breaks while files are copied: continued, with every byte that is sent again counted."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import headfirst
from headfirst.weights.hashing import PIECE
from headfirst.weights.swarm import Failed, Swarm
from swarm_hosts import (
    MIB,
    PORT,
    MakeSwarm,
    Source,
    await_failure,
    await_names,
    hosts,
    limit_rate,
    settled_traffic,
    start,
)

__all__ = ["hosts", "start"]  # fixtures


def test_killed_node_fetches_only_what_it_lacks(hosts: list[str], start: MakeSwarm, tmp_path: Path) -> None:
    source = Source(tmp_path / "head", file=32 * MIB)
    head = start(0)
    source.seed(head)
    limit_rate(head, 16 * MIB)
    (tmp_path / "torrent").write_bytes(source.torrents["sub/file"])
    node = subprocess.Popen(
        [sys.executable, "-c", _NODE, hosts[1], hosts[0], str(PORT), str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(headfirst.__file__).parents[1])},
    )
    assert node.stdout
    assert node.stdout.readline() == b"a third is here\n"
    node.send_signal(signal.SIGKILL)
    node.wait()
    limit_rate(head, 0)

    lacking = 32 * MIB - _right_bytes(source.folder / "sub/file", tmp_path / "node/sub/file")
    assert lacking < 25 * MIB
    again = start(1)
    again.link(hosts[0])
    source.receive(again, tmp_path / "node")
    await_names(again, {"sub/file"})
    assert source.same(tmp_path / "node")
    assert settled_traffic(again).received == lacking


_NODE = """
import sys, time
from pathlib import Path
from headfirst.weights.swarm import Swarm
own, upstream, port, folder = sys.argv[1:]
swarm = Swarm(own, int(port), [upstream])
swarm.link(upstream)
swarm.receive("sub/file", (Path(folder) / "torrent").read_bytes(), Path(folder) / "node")
while swarm.progress()["sub/file"] < 32 * 1024 * 1024 / 3:
    time.sleep(0.05)
print("a third is here", flush=True)
time.sleep(60)
"""


def _right_bytes(original: Path, copy: Path) -> int:
    """Bytes of those pieces of `copy` that are as in `original`."""
    with original.open("rb") as one, copy.open("rb") as other:
        pairs = iter(lambda: (one.read(PIECE), other.read(PIECE)), (b"", b""))
        return sum(len(right) for right, found in pairs if right == found)


def test_only_pieces_with_flipped_bytes_are_fetched(
    hosts: list[str], start: MakeSwarm, tmp_path: Path
) -> None:
    source = Source(tmp_path / "head", file=8 * MIB)
    copy = tmp_path / "node/sub/file"
    copy.parent.mkdir(parents=True)
    copy.write_bytes((source.folder / "sub/file").read_bytes())
    before = copy.stat()
    with copy.open("r+b") as file:
        for piece in (0, 5, 31):
            file.seek(piece * PIECE + 1000)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ (piece + 1)]))
    os.utime(copy, ns=(before.st_atime_ns, before.st_mtime_ns))
    head, node = start(0), start(1)
    source.seed(head)
    node.link(hosts[0])
    source.receive(node, tmp_path / "node")
    await_names(node, {"sub/file"})
    assert source.same(tmp_path / "node")
    assert settled_traffic(node).received == 3 * PIECE


def test_relay_that_is_gone_is_left_out(hosts: list[str], start: MakeSwarm, tmp_path: Path) -> None:
    source = Source(tmp_path / "head", file=32 * MIB)
    head, last = start(0), start(2)
    source.seed(head)
    limit_rate(head, 16 * MIB)
    relay = Swarm(hosts[1], PORT, hosts)
    relay.link(hosts[0])
    last.link(hosts[1])
    source.receive(relay, tmp_path / "relay")
    source.receive(last, tmp_path / "last")
    await_bytes(last, 8 * MIB)
    relay.close()
    limit_rate(head, 0)
    last.link(hosts[0])
    await_names(last, {"sub/file"})
    assert source.same(tmp_path / "last")
    assert settled_traffic(last).received - 32 * MIB < MIB


def test_successor_gives_back_what_predecessor_lacks(
    hosts: list[str], start: MakeSwarm, tmp_path: Path
) -> None:
    source = Source(tmp_path / "second", file=4 * MIB)
    first, second = start(0), start(1)
    source.seed(second)
    second.link(hosts[0])
    source.receive(first, tmp_path / "first")
    first.link(hosts[1])
    await_names(first, {"sub/file"})
    assert source.same(tmp_path / "first")


def test_full_disk_fails_and_is_continued(hosts: list[str], start: MakeSwarm, tmp_path: Path) -> None:
    source = Source(tmp_path / "head", file=16 * MIB)
    head, node = start(0), start(1)
    source.seed(head)
    node.link(hosts[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 * MIB, hard))
    try:
        source.receive(node, tmp_path / "node")
        assert await_failure(node) == Failed("sub/file", "File too large")
        assert node.events(1.0) == []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    source.receive(node, tmp_path / "node")
    await_names(node, {"sub/file"})
    assert source.same(tmp_path / "node")


def test_source_that_was_changed_is_named(hosts: list[str], start: MakeSwarm, tmp_path: Path) -> None:
    source = Source(tmp_path / "head", file=4 * MIB)
    head, node = start(0), start(1)
    source.seed(head)
    with (source.folder / "sub/file").open("r+b") as file:
        file.seek(MIB)
        file.write(b"not what it was")
    node.link(hosts[0])
    source.receive(node, tmp_path / "node")
    assert await_failure(head).why == "it was changed on this node's disk"
    assert node.events(0.5) == []


def await_bytes(swarm: Swarm, size: int) -> None:
    deadline = time.monotonic() + 20
    while sum(swarm.progress().values()) < size:
        assert time.monotonic() < deadline
        time.sleep(0.05)
