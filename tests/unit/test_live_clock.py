"""Clocks that are apart do not change the order of what happened; secrets do not come back."""

from __future__ import annotations

import time
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import docker_api
from described_container import described
from diagnosing import SGLANG, diagnose
from headfirst.common.untrusted import UntrustedError
from headfirst.control.evidence.collect import parse
from headfirst.control.live import supervision
from headfirst.control.live.clock import Clock, measure
from headfirst.decide.diagnose.types import NodeFacts


class Script:
    """A node script whose clock is ahead, and whose first answers are slow."""

    def __init__(self, ahead: float, delays: list[float]) -> None:
        self._ahead = ahead
        self._delays = iter(delays)

    def write(self, text: bytes) -> None:
        assert text == b"time\n"

    def flush(self) -> None:
        pass

    def readline(self, size: int) -> str:
        told = f"{time.time() + self._ahead!r}\n"
        time.sleep(next(self._delays))  # all of it on the way back
        return told


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 31.5])
def test_the_quickest_answer_is_the_surest(ahead: float) -> None:
    script = Script(ahead, [0.2, 0.1, 0.0, 0.1, 0.1])
    clock = measure(script, script)
    assert clock.offset == pytest.approx(ahead, abs=0.03)
    assert abs(clock.offset - ahead) <= clock.error + 0.001
    assert clock.corrected(1000.0 + ahead) == pytest.approx(1000.0, abs=0.03)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:01.500000000Z", 1.5),
        ("1970-01-01T00:00:01Z", 1.0),
        ("1970-01-01T02:00:01.25+02:00", 1.25),
    ],
)
def test_docker_times(text: str, seconds: float) -> None:
    assert docker_api.seconds(text) == seconds


def engine(log: list[str], status: str = "exited", **state: Any) -> dict[str, Any]:
    """What the node script tells of a container that has ended."""
    inspected = described(status, **{"ExitCode": 1, "FinishedAt": "2026-01-01T10:05:00Z", **state})
    inspected["Args"] = ["-m", "sglang.launch_server", "--api-key", "sesame", "--admin-api-key=sesame"]
    return {"inspected": inspected, "log": log, "earlier": []}


def facts(told: dict[str, Any] | None) -> dict[str, Any]:
    driver: dict[str, list[str]] = {"said": [], "gpus": [], "packages": []}
    return {
        "engine": told,
        "kernel": [],
        "driver": driver,
        "hcas": [],
        "health": None,
        "metrics": None,
        "probe": None,
    }


def parsed(rank: int, host: str, clock: Clock, told: dict[str, Any]) -> NodeFacts:
    return parse(rank, host, clock, told, SGLANG)


def test_the_order_over_nodes_with_skewed_clocks() -> None:
    # By their own clocks node1 lost its peer a minute before node2 ran out of memory; node1 is 90 s behind.
    lost = "2026-01-01T10:01:00.5Z RuntimeError: Connection closed by peer"
    memory = "2026-01-01T10:02:00.0Z torch.OutOfMemoryError: CUDA out of memory"
    taken = "2026-01-01T10:01:20.0Z OSError: [Errno 98] Address already in use"
    head = parsed(0, "node1", Clock(-90.0, 0.01), facts(engine([lost, taken])))
    worker = parsed(1, "node2", Clock(0.0, 0.01), facts(engine([memory])))
    found = diagnose([head, worker])
    assert found.decisive is not None
    assert (found.decisive.host, found.decisive.rule) == ("node2", "out-of-memory")
    assert [(event.rule, event.at - found.decisive.at) for event in found.then] == [
        ("lost-peer", 30.5),
        ("port-in-use", 50.0),
    ]
    assert [state.clock_offset_s for state in found.nodes] == [-90.0, 0.0]


def test_keys_among_the_arguments_are_masked() -> None:
    node = parsed(0, "node1", Clock(0.0, 0.01), facts(engine([])))
    assert node.container is not None
    assert "sesame" not in " ".join(node.container.argv)
    assert node.container.argv[-3:] == ("--api-key", "********", "--admin-api-key=********")


def test_a_container_that_never_started_and_a_docker_that_does_not_answer() -> None:
    no_time = "0001-01-01T00:00:00Z"
    never = engine([], "created", StartedAt=no_time, FinishedAt=no_time)
    node = parsed(0, "node1", Clock(0.0, 0.01), facts(never))
    assert node.container is not None
    assert node.container.started_at == node.container.finished_at == 0.0
    silent = parsed(0, "node1", Clock(0.0, 0.01), facts({"problem": "docker is not installed"}))
    assert (silent.container, silent.problem) == (None, "docker is not installed")


def test_of_a_progress_bar_the_last_state() -> None:
    told = engine(["2026-01-01T10:00:01Z Loading shards:   0%\rLoading shards: 100% | 8/8"])
    node = parsed(0, "node1", Clock(0.0, 0.01), facts(told))
    assert node.container is not None
    assert node.container.log[0].text == "Loading shards: 100% | 8/8"


@pytest.mark.parametrize("at", ["1e300", "NaN", "Infinity", "-1", "1" + "0" * 400, '"now"', "null", "[1]"])
def test_an_event_at_no_time_is_refused_with_its_host(at: str) -> None:
    line = f'{{"at": {at}, "name": "engine", "kind": "started", "text": "x"}}'
    with pytest.raises(UntrustedError, match="an event of the supervisor is not valid") as raised:
        supervision._event(line, Clock(0.5, 0.1), "node1")
    assert raised.value.where == "node1"


def test_an_event_has_the_controllers_time() -> None:
    with pytest.raises(UntrustedError):
        supervision._event('{"at": 0, "name": "e", "kind": "k", "text": ""}', Clock(9e10, 0.1), "node1")
    line = '{"at": 1000.5, "name": "engine", "kind": "started", "text": "x", "more": 1}'
    assert supervision._event(line, Clock(0.5, 0.1), "node1").at == 1000.0
