"""A spare takes the place of a host that stays away, by itself: of a worker, and then of the head."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from supervised import (
    ADDRESSES,
    CONFIG,
    HANG_S,
    NAME,
    PORT,
    VOLUMES,
    Replica,
    command,
    supervised_replica,
    wait,
)

pytestmark = pytest.mark.lab
SPARE = "10.213.96.13"
AFTER_S = 20
READINESS = {
    "path": "/health",
    "probe_path": "/v1/chat/completions",
    "probe_body": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1},
    "answer": ["usage", "completion_tokens"],
}


def waiting(replaces: int, own: str) -> dict[str, Any] | None:
    """A host's part of the generation in which the spare has the place of rank `replaces`."""
    ranks = [SPARE if rank == replaces else address for rank, address in enumerate(ADDRESSES)]
    if own not in ranks:
        return None
    rank, url = ranks.index(own), f"http://{ranks[0]}:{PORT}"
    return {
        "generation": f"standby-{replaces:012}",
        "rank": rank,
        "ranks": 2,
        "container": {
            "image": "headfirst/stand-in:1",
            "command": command(str(rank), ranks[0]),
            "network_mode": "host",
            "volumes": [*VOLUMES, *(CONFIG if rank == 0 else [])],
        },
        "record": {
            "url": url,
            "model": "one",
            "api_key": "sk-one",
            "readiness": READINESS,
            "files": {"/etc/headfirst/engine.yaml": "api-key: sk-one\n"} if rank == 0 else {},
            "supervision": {
                "ranks": ranks,
                "hang_seconds": HANG_S,
                "start_seconds": 60,
                "standby": {
                    "spare": SPARE,
                    "replaces": replaces,
                    "instead_of": ADDRESSES,
                    "instead_of_url": f"http://{ADDRESSES[0]}:{PORT}",
                    "after_seconds": AFTER_S,
                },
            },
        },
    }


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    with supervised_replica(tmp_path_factory.mktemp("takeover"), spares=1) as replica:
        for number, own in enumerate([*ADDRESSES, SPARE], start=1):
            parts = [part for part in (waiting(0, own), waiting(1, own)) if part]
            given = json.dumps({"engine_standbys": parts, "engine_is_spare": own == SPARE})
            replica.ansible("standby.yml", "-e", given, "--limit", f"node{number}")
        wait(lambda: replica.answers() and replica.phase() == "serving", 60, "the replica does not serve")
        yield replica


def ranks(replica: Replica) -> list[str]:
    """What runs on each node: the rank, or nothing; `away` where the node is off."""
    shown = "docker ps --filter label=headfirst.rank --format '{{.Label \"headfirst.rank\"}}'"
    found = [replica.on(node, shown) for node in (1, 2, 3)]
    return ["away" if "is not running" in one else one for one in found]


def power(replica: Replica, node: int, what: str) -> None:
    options = ["--time", "1"] if what == "stop" else []
    argv = ["docker", what, *options, replica.nodes.container(node)]
    subprocess.run(argv, check=True, stdout=subprocess.PIPE)


def test_a_node_that_comes_back_soon_is_not_replaced(replica: Replica) -> None:
    power(replica, 2, "stop")
    power(replica, 2, "start")
    wait(lambda: replica.answers() and ranks(replica) == ["0", "1", ""], 90, str(ranks(replica)))


def test_a_spare_takes_the_place_of_a_worker(replica: Replica) -> None:
    power(replica, 2, "stop")
    took = wait(lambda: replica.answers() and ranks(replica) == ["0", "away", "1"], 180, str(ranks(replica)))
    assert took > AFTER_S
    power(replica, 2, "start")
    wait(lambda: replica.on(2, "systemctl is-active docker") == "active", 60, "no Docker")
    # It has the place no longer, and starts nothing.
    wait(lambda: replica.answers() and ranks(replica) == ["0", "", "1"], 30, str(ranks(replica)))


def test_a_spare_takes_the_place_of_the_head(replica: Replica) -> None:
    """The roles bring back the ranks of the inventory first."""
    replica.ansible("play.yml")
    for number, own in enumerate([*ADDRESSES, SPARE], start=1):
        parts = [part] if (part := waiting(0, own)) else []
        given = json.dumps({"engine_standbys": parts, "engine_is_spare": own == SPARE})
        if own == SPARE:
            replica.on(3, f"docker stop {NAME}; docker rm {NAME}")
        replica.ansible("standby.yml", "-e", given, "--limit", f"node{number}")
    wait(lambda: replica.answers() and replica.phase() == "serving", 60, "the replica does not serve")
    power(replica, 1, "stop")
    wait(lambda: replica.answers(SPARE) and ranks(replica) == ["away", "1", "0"], 180, str(ranks(replica)))
    power(replica, 1, "start")
    wait(lambda: replica.on(1, "systemctl is-active docker") == "active", 60, "no Docker")
    wait(lambda: replica.answers(SPARE) and ranks(replica) == ["", "1", "0"], 30, str(ranks(replica)))
