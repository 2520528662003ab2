"""Copies over libtorrent on loopback addresses: whole, and only to members."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from headfirst.errors import NotReadyError
from headfirst.weights.hashing import PIECE, hash_file
from headfirst.weights.swarm import Swarm
from headfirst.weights.torrent import make_torrent
from swarm_hosts import MIB, PORT, MakeSwarm, Source, await_names, hosts, settled_traffic, start

__all__ = ["hosts", "start"]  # fixtures


@pytest.mark.parametrize("sessions", [1, 2])
def test_chain_copies_everything_and_head_sends_once(hosts: list[str], tmp_path: Path, sessions: int) -> None:
    source = Source(tmp_path / "0", tiny=100, piece=PIECE, more=PIECE + 1, large=20 * MIB, last=5_000_001)
    folders = [tmp_path / str(host) for host in range(4)]
    with ExitStack() as stack:
        swarms = [Swarm(host, PORT, hosts, sessions) for host in hosts]
        for swarm in swarms:
            stack.callback(swarm.close)
        source.seed(swarms[0])
        for swarm, folder, upstream in zip(swarms[1:], folders[1:], hosts, strict=False):
            swarm.link(upstream)
            source.receive(swarm, folder)
        for swarm, folder in zip(swarms[1:], folders[1:], strict=True):
            await_names(swarm, set(source.torrents))
            assert source.same(folder)
        total = sum((source.folder / name).stat().st_size for name in source.torrents)
        assert settled_traffic(swarms[0]).sent == total
        assert sum(swarms[3].progress().values()) == total


def test_who_is_no_peer_gets_nothing(hosts: list[str], start: MakeSwarm, tmp_path: Path) -> None:
    source = Source(tmp_path / "head", file=PIECE)
    head, stranger = start(0), start(3)
    source.seed(head)
    stranger.link(hosts[0])
    source.receive(stranger, tmp_path / "stranger")
    assert stranger.events(2.5) == []
    assert settled_traffic(head).sent == 0


def test_who_does_not_know_the_secret_gets_nothing(
    hosts: list[str], start: MakeSwarm, tmp_path: Path
) -> None:
    source = Source(tmp_path / "head", file=PIECE)
    head, other = start(0), start(1)
    source.seed(head)
    other.link(hosts[0])
    wrong = make_torrent("sub/file", hash_file(tmp_path / "head/sub/file"), "guessed")
    other.receive("sub/file", wrong, tmp_path / "other")
    assert other.events(2.5) == []
    assert settled_traffic(head).sent == 0
    source.receive(other, tmp_path / "other")
    await_names(other, {"sub/file"})


def test_port_that_is_taken_is_an_error(start: MakeSwarm) -> None:
    start(0)
    with pytest.raises(NotReadyError, match="cannot listen on"):
        start(0)


def test_forgotten_file_is_offered_no_more_and_stays(
    hosts: list[str], start: MakeSwarm, tmp_path: Path
) -> None:
    source = Source(tmp_path / "head", one=PIECE, two=PIECE)
    head, node = start(0), start(1)
    source.seed(head)
    head.forget("two")
    node.link(hosts[0])
    source.receive(node, tmp_path / "node")
    await_names(node, {"sub/one"})
    assert node.events(2.0) == []
    assert (tmp_path / "head/two").is_file()
    head.seed("two", source.torrents["two"], source.folder)
    await_names(node, {"two"})
