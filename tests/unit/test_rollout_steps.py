"""The steps of a rollout: their order, the way back, and what a host does with its supervisor."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.headfirst.serving.plugins.module_utils import rollout
from ansible_collections.headfirst.serving.plugins.module_utils.rollout import Step
from ansible_collections.headfirst.serving.plugins.plugin_utils.rollout_steps import HostSteps
from generations_model import with_defaults

ALL = {"supervisor", "proofs", "backup"}


def rank(
    number: int, *, running: bool = True, beside: tuple[str, ...] = (), **worked: float
) -> dict[str, Any]:
    """The state of a rank of which "old" has the name."""
    current = {"generation": "old", "running": running}
    generations = {name: {"worked_at": at} for name, at in worked.items()}
    state = {
        "host": f"node{number}",
        "rank": number,
        "seen": {"current": current, "generations": generations},
    }
    return {**state, "beside": list(beside)}


def change(*hosts: str, restart: bool = True, fallback: str = "old") -> dict[str, Any]:
    return {
        "generation": "new",
        "hosts": list(hosts),
        "restart": restart,
        "fallback": fallback,
        "fallback_hosts": list(hosts) if fallback else [],
    }


def text(steps: Iterable[Step]) -> str:
    """Each step with the numbers of its hosts."""
    return ", ".join(" ".join([step.do, *(host[-1] for host in step.hosts)]) for step in steps)


BOTH = change("node0", "node1")
RANKS = [rank(0, old=1.0), rank(1, old=1.0)]


def test_everything_that_can_be_refused_comes_before_the_first_stop() -> None:
    assert text(rollout.prepare(RANKS, BOTH, ALL)) == "record 0 1, create 0 1, pause 0 1, announce 0 1"
    assert text(rollout.run(RANKS, BOTH, ALL)) == (
        "drain 0, stop 0, stop 1, back_up 0, name 0 1, start 0, start 1, wait 0 1, prove 0, route 0, keep 0 1"
    )


def test_what_runs_as_planned_is_proven_and_left_alone() -> None:
    same = change("node0", "node1", restart=False, fallback="")
    ranks = [rank(0, new=1.0), rank(1, new=1.0)]
    assert text(rollout.prepare(ranks, same, ALL)) == "record 0 1"
    assert text(rollout.run(ranks, same, ALL)) == "wait 0 1, prove 0, keep 0 1, route 0"
    assert rollout.way_back(ranks, same, ALL, lost={"node1"}) == ([], [], [])
    assert text(rollout.way_back(ranks, same, ALL, lost=()).stop) == "stop 0, stop 1"


def test_the_way_back_starts_what_served() -> None:
    way = rollout.way_back(RANKS, BOTH, ALL, lost=())
    assert text(way.stop) == "drain 0, stop 0, stop 1"
    assert text(way.serve) == "restore 0, name 0 1, start 0, start 1, wait 0 1, route 0, keep 0 1"
    assert {step.generation for step in way.serve if step.do in ("name", "start", "wait", "keep")} == {"old"}
    assert all(step.back for step in (*way.stop, *way.serve))
    assert way.revive == []
    without_a_host = rollout.way_back(RANKS, BOTH, ALL, lost={"node1"})
    assert text(without_a_host.stop) == "drain 0, stop 0"
    assert without_a_host.serve == []


def test_what_ran_in_the_place_of_ranks_that_did_not_run_returns_instead_of_them() -> None:
    """Both would have the same address and GPUs."""
    displaced = [rank(0, running=False, beside=("engine-chat",), old=1.0), rank(1, running=False, old=1.0)]
    way = rollout.way_back(displaced, BOTH, ALL, lost=())
    assert way.serve == []
    assert text(way.revive) == "revive_displaced 0"


def test_ranks_that_had_others_on_other_hosts_get_the_name_back() -> None:
    first = change("node0", fallback="")
    assert text(rollout.way_back([rank(0, old=1.0)], first, ALL, lost=()).revive) == "name 0, revive 0"
    never_served = [rank(0, old=0.0)]
    assert rollout.way_back(never_served, first, ALL, lost=()).revive == []


def follow(course: rollout.Course, **failing: str) -> tuple[list[str], rollout.Ended]:
    """All steps, of which some fail: the reason by the step and its generation, as name_old."""
    taken = []
    outcome = None
    try:
        while True:
            step = course.send(outcome)  # type: ignore[arg-type]
            taken.append(f"{step.do} {step.generation}".strip())
            why = failing.get(f"{step.do}_{step.generation}")
            outcome = rollout.StepOutcome(
                dict.fromkeys(step.hosts), dict.fromkeys(step.hosts, why) if why else {}
            )
    except StopIteration as ended:
        return taken, ended.value


def test_what_runs_as_planned_is_done_with_before_a_stop_would_come() -> None:
    same = change("node0", "node1", restart=False, fallback="")
    taken, ended = follow(rollout.carry_out(RANKS, same, set(), until_stop=True))
    assert (taken, ended) == (["record new", "create new", "wait new", "keep new"], rollout.Ended())
    taken, ended = follow(rollout.carry_out(RANKS, BOTH, set(), until_stop=True))
    assert (taken, ended) == (["record new", "create new", "announce new"], rollout.Ended())


def test_a_failure_before_the_first_stop_changes_nothing() -> None:
    taken, ended = follow(rollout.carry_out(RANKS, BOTH, ALL, until_stop=False), create_new="No image.")
    assert taken == ["record new", "create new"]
    assert ended == rollout.Ended("No image.")


def test_where_none_serves_all_are_stopped_again() -> None:
    course = rollout.carry_out(RANKS, BOTH, set(), until_stop=False)
    taken, ended = follow(course, wait_new="It ended.", wait_old="It ended, too.")
    assert taken[-3:] == ["wait old", "stop", "stop"]
    assert (ended.failure, ended.returned, ended.again) == ("It ended.", True, "It ended, too.")


def test_a_rank_that_cannot_be_stopped_is_reported_and_keeps_no_other_one() -> None:
    course = rollout.carry_out(RANKS, BOTH, set(), until_stop=False)
    taken, ended = follow(course, wait_new="It ended.", stop_="Docker hangs.")
    assert taken == [
        *("record new", "create new", "announce new", "stop", "stop", "stop"),
        *("name old", "start old", "start old", "wait old", "keep old"),
    ]
    assert (ended.failure, ended.stuck) == ("Docker hangs.", ("Docker hangs.",) * 2)


class Host:
    """A host whose supervisor is a script, and whose modules answer nothing."""

    def __init__(self, exit_code: int, stderr: str = "") -> None:
        self.answer = {"rc": exit_code, "stderr": stderr}
        self.commands: list[str] = []

    def steps(self, **options: Any) -> HostSteps:
        given = {"name": "headfirst-engine", "state": "prepared", "supervisor": "/bin/s", "ranks": 1}
        args = with_defaults(**(given | options))
        return HostSteps(args, "node0", lambda *_: {"beside": []}, self.shell, Path("board"), check=False)

    def shell(self, command: str, data: bytes) -> dict[str, Any]:
        self.commands.append(command)
        return self.answer


@pytest.mark.parametrize(
    ("exit_code", "replicas", "running", "is_outage"),
    # 2: node tools of an earlier release do not have the command, or there are none.
    [
        (0, 1, True, False),
        (0, 2, True, False),
        (3, 2, True, True),
        (3, 2, False, False),
        (2, 1, True, True),
        (2, 2, True, False),
    ],
)
def test_an_outage_is_announced(exit_code: int, replicas: int, running: bool, is_outage: bool) -> None:
    host = Host(exit_code)
    steps = host.steps(replicas=replicas, changed=[["http://a:1", "regular"]])
    steps.do(Step("announce", ("node0",), "new"), {"running": running})
    assert [finding["id"] for finding in steps.findings] == ["outage"] * is_outage
    command = "test -x /bin/s || exit 2; /bin/s needed headfirst-engine --changed http://a:1 regular"
    assert host.commands == [command] * running


def test_the_hold_of_a_person_ends_the_rollout_and_no_removal() -> None:
    host = Host(3, "headfirst-engine is held by hand.\n")
    with pytest.raises(AnsibleActionFail, match=r"^On node0: headfirst-engine is held by hand\.$"):
        host.steps().do(Step("pause", ("node0",)), {})
    assert "env HEADFIRST_RUN=1 /bin/s hold headfirst-engine --seconds 7800" in host.commands[0]
    host = Host(0)
    host.steps(state="absent").do(Step("pause", ("node0",)), {})
    assert "HEADFIRST_RUN" not in host.commands[0]


def test_requests_that_still_run_are_a_warning() -> None:
    host = Host(0, "headfirst-engine: 2 requests still run after 120 s\n")
    steps = host.steps()
    steps.do(Step("drain", ("node0",)), {})
    (found,) = steps.findings
    assert found["what"] == "headfirst-engine: 2 requests still run after 120 s"
    steps.do(Step("drain", ("node0",), back=True), {})  # a replica that failed has less time
    assert host.commands[1].endswith("drain headfirst-engine --seconds 10")


def test_a_command_that_fails_ends_the_step() -> None:
    with pytest.raises(AnsibleActionFail, match="the router http://r does not use it"):
        Host(3, "the router http://r does not use it").steps(record={}).do(Step("route", ("node0",)), {})
