"""When the supervisor of a spare takes over, and whom it asks in which order; the hosts are simulated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from headfirst.node.supervisor import host_state, records
from headfirst.node.supervisor.messages import RankRequest, Seen
from headfirst.node.supervisor.takeover import Standbys

HEAD, WORKER, SPARE, AFTER_S = "10.0.0.1", "10.0.0.2", "10.0.0.3", 60.0
NAME, GENERATION = "headfirst-engine", "standby-0123456789ab"
RECORD: Any = SimpleNamespace(name=NAME, generation=GENERATION, ranks=(HEAD, SPARE))
WAITS = SimpleNamespace(record=RECORD, spare=SPARE, replaces=1, instead_of=(HEAD, WORKER), after_s=AFTER_S)


class Hosts:
    """`Nodes` of the spare, whose worker is away; `asked` has what is more than a look."""

    def __init__(self) -> None:
        self.host, self.now = SPARE, 1000.0
        self.looks: dict[str, Seen | None] = {HEAD: Seen("0123456789ab", running=True), WORKER: None}
        self.refuses: dict[str, Seen | None] = {}
        self.asked: list[tuple[str, str]] = []
        self.events: list[str] = []
        events: Any = SimpleNamespace(add=lambda name, kind, text, **_: self.events.append(text))
        self.spare = Standbys(self, events)  # type: ignore[arg-type]

    def ask(self, address: str, request: RankRequest, limit_s: float) -> Seen | None:
        if request.do == "look":
            return self.looks[address]
        self.asked.append((request.do, address))
        return self.refuses.get(address, Seen(GENERATION))

    def after(self, seconds: float) -> list[tuple[str, str]]:
        """What is asked in the turn after so many seconds."""
        self.now += seconds
        self.asked = []
        self.spare.turn()
        return self.asked


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    hosts = Hosts()
    monkeypatch.setattr(host_state, "uptime", lambda: hosts.now)
    monkeypatch.setattr(records, "standbys", lambda _: [WAITS])
    return hosts


def test_all_hosts_agree_before_the_first_changes_and_the_spare_is_the_last(hosts: Hosts) -> None:
    assert hosts.after(0) == hosts.after(AFTER_S - 1) == []
    assert hosts.after(1) == [("prepare", HEAD), ("prepare", SPARE), ("activate", HEAD), ("activate", SPARE)]


@pytest.mark.parametrize("looks", [{HEAD: None}, {WORKER: Seen()}])
def test_the_time_begins_again_where_another_host_is_away_or_none(
    hosts: Hosts, looks: dict[str, Seen | None]
) -> None:
    before = hosts.looks
    hosts.after(0)
    hosts.looks = before | looks
    assert hosts.after(AFTER_S) == []
    hosts.looks = before
    assert hosts.after(1) == hosts.after(AFTER_S - 1) == []
    assert hosts.after(1)


@pytest.mark.parametrize("answer", [None, Seen(problem="the replica answers")])
def test_nothing_changes_where_a_host_does_not_agree(hosts: Hosts, answer: Seen | None) -> None:
    hosts.refuses = {HEAD: answer}
    hosts.after(0)
    assert hosts.after(AFTER_S) == [("prepare", HEAD)]


def test_what_a_host_has_activated_is_completed(hosts: Hosts) -> None:
    """Also where the host that was away is back, and where the spare was started again in between."""
    hosts.looks = {HEAD: Seen(GENERATION), WORKER: Seen("0123456789ab")}
    assert hosts.after(0) == [("activate", HEAD), ("activate", SPARE)]


def test_each_takeover_has_its_event_also_one_that_is_completed_later(hosts: Hosts) -> None:
    takes = f"the spare {SPARE} takes the place of {WORKER}"
    hosts.after(0)
    hosts.after(AFTER_S)
    hosts.after(AFTER_S)  # `deploy up` has returned to the inventory, and the host is away again
    assert hosts.events == [takes, takes]
    hosts.looks = {HEAD: Seen(GENERATION), WORKER: None}
    hosts.after(0)
    assert hosts.events == [takes, takes, takes]
