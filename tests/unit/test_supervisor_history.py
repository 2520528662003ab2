"""What `deploy events` makes of an event: the rank where a failure began, from the logs of all ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import profile
from headfirst.control.credentials.secrets import load_or_create
from headfirst.control.deployment.verbs import events as verb
from headfirst.control.inventory.inventory import load
from headfirst.control.live import supervision
from headfirst.control.live.clock import Clock
from headfirst.decide import engines
from headfirst.node.supervisor.events import Events

LOST = "[rank1]: RuntimeError: [gloo/transport/tcp/pair.cc:538] Connection closed by peer [10.0.0.1]:49313"
KILLED = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
HOSTS: Any = SimpleNamespace(
    index=0,
    hosts=(
        SimpleNamespace(name="node1", address="10.0.0.1"),
        SimpleNamespace(name="node2", address="10.0.0.2"),
    ),
)
CLOCK = Clock(0.0, 0.0)
LOG = profile(engines.get("sglang").log())


def shown(folder: Path, rank: int, logs: dict[int, list[str]]) -> verb.ReplicaEvent:
    """The event as `deploy events` shows it, after its way through the file of the supervisor."""
    text = f"rank {rank} (10.0.0.{rank + 1}): it ended with exit code 137"
    Events(folder / "events.jsonl").add("headfirst-engine", "ended", text, rank=rank, logs=logs)
    found = supervision._event((folder / "events.jsonl").read_text().splitlines()[-1], CLOCK, "node1")
    return verb._event("node1", found, "demo", HOSTS, LOG, {"node1": CLOCK})  # type: ignore[arg-type]


def test_the_rank_is_named_whose_log_has_the_first_failure(tmp_path: Path) -> None:
    event = shown(tmp_path, 1, {0: ["loading", KILLED], 1: ["loading", LOST]})
    assert event.cause.startswith("It began on rank 0 (10.0.0.1): ") and "memory" in event.cause
    assert event.log == ["loading", KILLED]


@pytest.mark.parametrize("other", [["all is well"], [LOST], []])
def test_without_another_cause_the_rank_that_ended_is_named(tmp_path: Path, other: list[str]) -> None:
    event = shown(tmp_path, 1, {0: other, 1: [LOST]})
    assert event.cause == "it lost another rank" and event.log == [LOST]


def test_a_rank_with_a_cause_of_its_own_is_named(tmp_path: Path) -> None:
    event = shown(tmp_path, 1, {0: [KILLED], 1: [KILLED, "more"]})
    assert not event.cause.startswith("It began") and event.log == [KILLED, "more"]


def test_logs_of_many_ranks_stay_short(tmp_path: Path) -> None:
    logs = {rank: ["x" * 100] * 60 for rank in range(128)}
    Events(tmp_path / "events.jsonl").add("headfirst-engine", "ended", "text", rank=3, logs=logs)
    line = (tmp_path / "events.jsonl").read_text()
    assert len(line) < 200_000
    found = json.loads(line)
    assert len(found["log"]) == 60 and len(found["logs"]) == 127 and "3" not in found["logs"]


def test_damaged_lines_of_a_history_are_counted_and_the_others_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "events.jsonl"
    Events(file).add("engine-0", "ended", "it ended")
    whole = file.read_bytes()
    file.write_bytes(whole + b"\xff\xfe\n" + whole[: len(whole) // 2])  # a bad disk; a power failure
    Events(file).add("engine-0", "started", "it started")
    script = supervision._SCRIPT.replace(supervision.HISTORY, str(file))
    sent = subprocess.run([sys.executable, "-c", script], input=b"go\n", stdout=subprocess.PIPE, check=True)
    found = supervision.parsed(sent.stdout, CLOCK, "node1")
    assert [one.kind for one in found.events] == ["ended", "started"]
    assert found.damaged == 2


def test_damaged_lines_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = load([Path(__file__).parents[2] / "inventories" / "lab.ini"])
    damaged = supervision.HostHistory(events=[], damaged=3, clock=CLOCK)
    none = supervision.HostHistory(events=[], damaged=0, clock=CLOCK)
    answers = {"node1": damaged, "node2": none}
    monkeypatch.setattr(verb, "host_access", lambda cluster: dict.fromkeys(answers))
    monkeypatch.setattr(verb, "try_each", lambda hosts, ask: answers)
    assert verb.events(cluster).damaged == {"node1": 3}


def test_events_show_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an engine logged of its arguments and environment before it ended."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "cluster.ini"
    path.write_text(
        "[head]\nnode1 ansible_host=192.0.2.1\n[all:vars]\nmodel_source=demo\nengine_device=cpu\n"
        "engine_env=HF_TOKEN=hf_marked-token\n"
    )
    cluster = load([path])
    key = load_or_create(cluster).engine_api_key
    log = [f"ServerArgs(api_key='{key}')", "environ HF_TOKEN=hf_marked-token"]
    Events(tmp_path / "events.jsonl").add("headfirst-engine", "ended", log[0], rank=0, logs={0: log})
    found = supervision._event((tmp_path / "events.jsonl").read_text(), CLOCK, "node1")
    history = supervision.HostHistory(events=[found], damaged=0, clock=CLOCK)
    monkeypatch.setattr(verb, "try_each", lambda hosts, ask: {"node1": history})
    (event,) = verb.events(cluster).events
    assert event.log == ["ServerArgs(api_key='********')", "environ HF_TOKEN=********"]
    assert key not in event.text
