"""One crash has one cause, whoever asks: `up`, `events` and `diagnose`."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.headfirst.serving.plugins.plugin_utils import failure_causes, rank_board, rank_watch
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line
from diagnosing import START, container, node
from diagnosing import ended as ended_container
from failure_lines import PROFILES, matched
from headfirst.control.deployment.verbs import events as verb
from headfirst.control.live import supervision
from headfirst.control.live.clock import Clock
from headfirst.decide import engines
from headfirst.decide.diagnose import decide
from headfirst.decide.diagnose.subject import subject
from headfirst.node.supervisor.events import Events

CRASHES = yaml.safe_load((Path(__file__).parent / "data/crashes.yml").read_text())
AHEAD_S = (0.0, 100.0)
"""How far the clocks of the ranks' hosts are ahead."""


def crash(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The ranks of a case, lines in the place of rules."""
    samples = {rule.id: matched(case["engine"], rule.id)[0] for rule in PROFILES[case["engine"]].rules}
    return [
        {**rank, "log": {at: samples.get(text, text) for at, text in rank["log"].items()}}
        for rank in case["ranks"]
    ]


def stamp(seconds: float, rank: int) -> str:
    at = datetime.fromtimestamp(START + seconds + AHEAD_S[rank], timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def stamped(number: int, rank: dict[str, Any]) -> list[str]:
    """The log of a rank as Docker gives it with times."""
    return [f"{stamp(at, number)} {text}" for at, text in rank["log"].items()]


def by_diagnose(case: dict[str, Any]) -> tuple[int, str]:
    engine = engines.get(case["engine"])
    nodes = [
        node(
            number,
            ended_container(number, rank["log"], rank["ended"])
            if "ended" in rank
            else container(number, rank["log"]),
        )
        for number, rank in enumerate(crash(case))
    ]
    decisive = decide.diagnose(nodes, subject(engine, engine.readiness("chat"))).decisive
    assert decisive
    return decisive.rank, decisive.rule


def by_up(case: dict[str, Any]) -> tuple[int, str]:
    log = PROFILES[case["engine"]]
    verdicts = []
    for number, rank in enumerate(crash(case)):
        runs = "ended" not in rank
        seen = {
            "exists": True,
            "running": runs,
            "ready": False,
            "probe": "",
            "exit_code": 0 if runs else 1,
            "oom_killed": False,
            "finished_at": "" if runs else stamp(rank["ended"], number),
        }
        lines = failure_causes.stamped(stamped(number, rank), AHEAD_S[number], 0.0)
        host = f"node{number + 1}"
        verdicts.append(rank_watch.judge(host, number, seen, lines, log, AHEAD_S[number], False))
    first, cause, _ = rank_board.explain(verdicts)
    return first.rank, cause.rule


def by_events(case: dict[str, Any], folder: Path) -> tuple[int, str]:
    """The cause of the event of the rank whose end the supervisor saw first."""
    ranks = crash(case)
    logs = {number: stamped(number, rank) for number, rank in enumerate(ranks)}
    ended = {number: rank["ended"] for number, rank in enumerate(ranks) if "ended" in rank}
    first = min(ended, key=lambda number: ended[number])
    file = folder / "events.jsonl"
    Events(file).add("headfirst-engine", "ended", "it ended", rank=first, logs=logs)
    entry = json.loads(file.read_text()) | {"at": START + ended[first]}
    event = supervision._event(json.dumps(entry), Clock(0.0, 0.0), "node1")
    hosts = [SimpleNamespace(name=f"node{rank + 1}", address=f"10.0.0.{rank + 1}") for rank in logs]
    replica: Any = SimpleNamespace(index=0, hosts=hosts)
    clocks = {f"node{rank + 1}": Clock(AHEAD_S[rank], 0.0) for rank in logs}
    log = PROFILES[case["engine"]]
    shown = verb._event("node1", event, "demo", replica, log, clocks)  # type: ignore[arg-type]
    begun, _, means = shown.cause.rpartition("): ")
    rank = int(begun.removeprefix("It began on rank ").split()[0]) if begun else first
    rules = {
        rule.words(line, {})[0]: rule.id for rule in log.rules for line in matched(case["engine"], rule.id)
    }
    return rank, rules.get(means, "unknown-error" if "no rule matches" in shown.cause else means)


@pytest.mark.parametrize("case", CRASHES, ids=lambda case: case["name"])
def test_all_name_the_same_cause(case: dict[str, Any], tmp_path: Path) -> None:
    expected = tuple(case["cause"])
    assert by_diagnose(case) == expected
    assert by_up(case) == expected
    assert by_events(case, tmp_path) == expected


@pytest.mark.parametrize("name", PROFILES)
def test_a_known_cause_wins_against_every_line_that_is_none(name: str) -> None:
    log = PROFILES[name]
    others = [rule for rule in log.rules if rule.weight != "cause"]
    assert {"general", "consequence"} <= {rule.weight for rule in others}
    texts = [matched(name, rule.id)[0] for rule in others]
    before = [Line(0.0, text) for text in texts]
    after = [Line(2.0, "RuntimeError: and what came of it"), *(Line(2.0, text) for text in texts)]
    for rule in log.rules:
        if rule.weight == "cause":
            lines = [*before, Line(1.0, matched(name, rule.id)[0]), *after]
            decisive = failure_causes.decisive(failure_causes.in_log(log, lines))
            assert decisive and decisive.rule == rule.id


def test_lines_without_a_time_have_that_of_the_line_before() -> None:
    log = ["before", "2027-01-15T08:00:05.5Z a", "b", "2027-01-15T09:00:06+01:00 c"]
    lines = failure_causes.stamped(log, ahead_s=2.0, unstamped_at=7.0)
    assert lines == [
        Line(7.0, "before"),
        Line(START + 3.5, "a"),
        Line(START + 3.5, "b"),
        Line(START + 4.0, "c"),
    ]


def test_events_of_a_supervisor_that_recorded_no_times_are_read(tmp_path: Path) -> None:
    log = [matched("sglang", rule)[0] for rule in ("nccl-failed", "memlock")]
    lines = {0: failure_causes.stamped(log, 0.0, 9.0)}
    event: Any = SimpleNamespace(at=9.0, rank=0, kind="ended")
    rank, cause = verb._cause(event, PROFILES["sglang"], lines)
    assert rank == 0 and cause and cause.rule == "memlock"
