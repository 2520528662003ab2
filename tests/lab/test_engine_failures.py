"""Ranks that die, never meet, or are refused by the engine: said at once, taken up by the next `up`."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest
from readme_lab import Service, bring_up, deploy, on_node, running, started

pytestmark = pytest.mark.lab
NODES = ("node1", "node2")
# The rendezvous of the ranks.
DIST_PORT = 5000
CUT = f"INPUT --protocol tcp --dport {DIST_PORT} ! --source 127.0.0.0/8 --jump DROP"


def starts() -> list[str]:
    return [started(node) for node in NODES]


def attempt(arguments: str) -> subprocess.CompletedProcess[str]:
    return deploy("up", options=["--tags", "serve", "-e", f"engine_args='{arguments}'", "--plain"])


def test_a_second_up_restarts_nothing(service: Service) -> None:
    before = starts()
    assert bring_up().changed == 0
    assert starts() == before


def test_a_killed_rank_brings_all_ranks_back(service: Service) -> None:
    before = starts()
    on_node("node2", "docker kill headfirst-engine")
    again = bring_up("--tags", "serve")
    assert again.changed > 0
    assert all(new > old for new, old in zip(starts(), before, strict=True))


@pytest.fixture
def cut_rendezvous() -> Iterator[None]:
    """No worker reaches the head's rendezvous."""
    on_node("node1", f"iptables --insert {CUT}")
    yield
    on_node("node1", f"iptables --delete {CUT}")


def test_a_worker_that_never_comes(service: Service, cut_rendezvous: None) -> None:
    begin = time.monotonic()
    done = attempt("--dist-timeout 30")
    assert done.returncode == 1
    assert "not all ranks came to the rendezvous" in done.stderr or "did not reach rank 0" in done.stderr
    assert "dist_port" in done.stderr
    # Imports take up to a minute and a half on two busy cores.
    assert time.monotonic() - begin < 240
    assert not any(running(node) for node in NODES)


def test_an_argument_that_only_the_engine_refuses(service: Service) -> None:
    done = attempt("--attention-backend fa3")
    assert done.returncode == 1
    assert "Rank " in done.stderr
    assert "  | " in done.stderr
    assert not any(running(node) for node in NODES)


def test_what_failed_is_taken_up(service: Service) -> None:
    bring_up()
    assert all(running(node) for node in NODES)
