"""Which generation runs, and which one is returned to: from every state that a run can leave."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils.service_change import change, rollback

OLD, OLDER = "old", "older"


def rank(
    number: int, current: str = "", *, running: bool = True, fingerprint: str = "new", **worked: float
) -> dict[str, Any]:
    """A rank's state; `worked` is when each generation that it has a container of served, 0 for never."""
    generations = {name: {"worked_at": at, "rank": number, "ranks": 2} for name, at in worked.items()}
    return {
        "host": f"node{number}",
        "rank": number,
        "fingerprint": fingerprint,
        "seen": {
            "current": {"generation": current, "running": bool(current) and running, "rank": number},
            "generations": generations,
        },
    }


NEW = change([rank(0), rank(1)])["generation"]


def test_a_generation_is_all_ranks_together() -> None:
    assert change([rank(0), rank(1, fingerprint="other")])["generation"] != NEW
    assert change([rank(1), rank(0)])["generation"] == NEW


def test_the_first_start_has_nothing_to_return_to() -> None:
    found = change([rank(0), rank(1)])
    assert (found["restart"], found["fallback"], found["keep"]) == (True, "", [NEW])


def test_what_runs_as_wanted_is_left_alone() -> None:
    assert not change([rank(n, NEW, **{NEW: 5.0}) for n in (0, 1)])["restart"]


def test_a_dead_rank_restarts_all_and_is_no_change() -> None:
    found = change([rank(0, NEW, **{NEW: 5.0, OLD: 1.0}), rank(1, NEW, running=False, **{NEW: 0, OLD: 1.0})])
    assert (found["restart"], found["fallback"]) == (True, "")


def test_a_change_returns_to_what_served_last() -> None:
    found = change([rank(n, OLD, **{OLD: 5.0, OLDER: 3.0}) for n in (0, 1)])
    assert (found["fallback"], found["fallback_hosts"]) == (OLD, ["node0", "node1"])
    assert found["keep"] == [NEW, OLD]


@pytest.mark.parametrize(
    "ranks",
    [
        # Killed between the renames of two hosts, and before any rank got the new name.
        [rank(0, NEW, **{NEW: 0, OLD: 5.0}), rank(1, OLD, **{NEW: 0, OLD: 5.0})],
        [rank(0, **{NEW: 0, OLD: 5.0}), rank(1, OLD, running=False, **{NEW: 0, OLD: 5.0})],
        # Killed while the old one was marked: one host has the mark.
        [rank(0, OLD, **{OLD: 5.0}), rank(1, OLD, **{OLD: 0})],
    ],
)
def test_a_killed_run_does_not_lose_the_old_version(ranks: list[dict[str, Any]]) -> None:
    found = change(ranks)
    assert (found["restart"], found["fallback"]) == (True, OLD)


@pytest.mark.parametrize(
    "ranks",
    [
        [rank(0, OLD, **{OLD: 0}), rank(1, OLD, **{OLD: 0})],  # it never served
        [rank(0, OLD, **{OLD: 5.0}), rank(1)],  # a host lost its container
    ],
)
def test_what_did_not_serve_or_is_incomplete_is_not_returned_to(ranks: list[dict[str, Any]]) -> None:
    assert change(ranks)["fallback"] == ""


def test_a_new_host_takes_no_part_in_the_old_version() -> None:
    found = change([rank(0, OLD, **{OLD: 5.0}), rank(1, OLD, **{OLD: 5.0}), rank(2)])
    assert (found["fallback"], found["fallback_hosts"]) == (OLD, ["node0", "node1"])


def test_a_change_returns_to_what_runs_also_where_another_version_was_started_after_it() -> None:
    ranks = [rank(number, OLDER, old=2.0, older=1.0) for number in (0, 1)]
    assert change(ranks)["fallback"] == OLDER
    stopped = [rank(number, OLDER, running=False, old=2.0, older=1.0) for number in (0, 1)]
    assert change(stopped)["fallback"] == OLD


def test_rollback_goes_to_the_version_before_and_can_return() -> None:
    found = rollback([rank(n, OLD, **{OLD: 5.0, OLDER: 3.0}) for n in (0, 1)])
    assert (found["generation"], found["fallback"]) == (OLDER, OLD)
    back = rollback([rank(n, OLDER, **{OLD: 5.0, OLDER: 9.0}) for n in (0, 1)])
    assert (back["generation"], back["fallback"]) == (OLD, OLDER)


def test_rollback_with_one_version_has_nowhere_to_go() -> None:
    assert rollback([rank(n, OLD, **{OLD: 5.0}) for n in (0, 1)])["generation"] == ""
