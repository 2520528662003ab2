"""Nodes of a swarm on loopback addresses, and random files for them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from headfirst.weights.hashing import hash_file
from headfirst.weights.swarm import Failed, Finished, Swarm, Traffic
from headfirst.weights.torrent import make_torrent

MIB = 1024 * 1024
PORT = 17460
_networks = count(1)

MakeSwarm = Callable[..., Swarm]


@pytest.fixture
def hosts() -> list[str]:
    """Four addresses that no other test has used."""
    network = f"127.{os.getpid() % 200 + 2}.{next(_networks)}"
    return [f"{network}.{number}" for number in range(1, 5)]


@pytest.fixture
def start(hosts: list[str]) -> Iterator[MakeSwarm]:
    """Start the swarm of one host, with the first three for peers."""
    with ExitStack() as stack:

        def make(host: int, **options: object) -> Swarm:
            swarm = Swarm(hosts[host], PORT, hosts[:3], **options)  # type: ignore[arg-type]
            stack.callback(swarm.close)
            return swarm

        yield make


class Source:
    """A folder with random files and their torrents."""

    def __init__(self, folder: Path, secret: str = "secret", **sizes: int) -> None:
        self.folder = folder
        self.torrents: dict[str, bytes] = {}
        for number, (key, size) in enumerate(sizes.items()):
            name = f"sub/{key}" if number == 0 else key
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(size))
            self.torrents[name] = make_torrent(name, hash_file(path), secret)

    def seed(self, swarm: Swarm) -> None:
        for lane, (name, torrent) in enumerate(self.torrents.items()):
            swarm.seed(name, torrent, self.folder, lane)

    def receive(self, swarm: Swarm, folder: Path) -> None:
        for lane, (name, torrent) in enumerate(self.torrents.items()):
            swarm.receive(name, torrent, folder, lane)

    def same(self, folder: Path) -> bool:
        return all(
            (folder / name).read_bytes() == (self.folder / name).read_bytes() for name in self.torrents
        )


def await_names(swarm: Swarm, names: set[str], limit: float = 20.0) -> None:
    """Wait until `names` are finished; nothing may fail."""
    missing = set(names)
    deadline = time.monotonic() + limit
    while missing:
        assert time.monotonic() < deadline, f"not finished in {limit} s: {missing}"
        for event in swarm.events(0.1):
            assert isinstance(event, Finished), event
            missing.discard(event.name)


def await_failure(swarm: Swarm, limit: float = 20.0) -> Failed:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        for event in swarm.events(0.1):
            if isinstance(event, Failed):
                return event
    raise AssertionError("nothing failed")


def settled_traffic(swarm: Swarm) -> Traffic:
    """The traffic, when the last sample of it is in."""
    time.sleep(1.2)
    return swarm.traffic()


def limit_rate(swarm: Swarm, rate: int) -> None:
    """Bytes a second that it sends: a slow link, made where it is easiest."""
    for lane in swarm._lanes:
        lane._session.apply_settings({"upload_rate_limit": rate})
