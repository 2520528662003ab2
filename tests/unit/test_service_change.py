"""Which generation runs, and which one is returned to: from every state that a run can leave."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils.service_change import (
    by_replica,
    change,
    host_ranks,
    kept,
    previous,
    rollback,
)
from together import together

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


def test_a_generation_is_all_ranks_together_and_kept_while_new_or_returned_to() -> None:
    assert change([rank(0), rank(1, fingerprint="other")])["generation"] != NEW
    assert change([rank(1), rank(0)])["generation"] == NEW
    assert change(both(""))["keep"] == [NEW]
    assert change(both(OLD, old=5.0, older=3.0))["keep"] == [NEW, OLD]


def both(current: str, **state: Any) -> list[dict[str, Any]]:
    return [rank(number, current, **state) for number in (0, 1)]


OWN = hashlib.sha256(json.dumps([[0, "new"], [1, "new"]]).encode()).hexdigest()[:12]


@together(
    ("ranks", "restart", "fallback"),
    [
        # The first start; what runs as it is wanted; a dead rank, which is no change.
        (both(""), True, ""),
        (both(NEW, **{NEW: 5.0}), False, ""),
        ([rank(0, NEW, **{NEW: 5.0, OLD: 1.0}), rank(1, NEW, running=False, **{NEW: 0, OLD: 1.0})], True, ""),
        # A generation of a release that did not name the hosts goes on.
        (both(OWN, **{OWN: 5.0}), False, ""),
        (both(OLD, old=5.0, older=3.0), True, OLD),
        # What served before is undone, too.
        (both(OLD, **{OLD: 5.0, NEW: 3.0}), True, OLD),
        # What runs, also where another version was started after it; else what served last.
        (both(OLDER, old=2.0, older=1.0), True, OLDER),
        (both(OLDER, running=False, old=2.0, older=1.0), True, OLD),
        # Killed between the renames of two hosts, and before any rank got the new name.
        ([rank(0, NEW, **{NEW: 0, OLD: 5.0}), rank(1, OLD, **{NEW: 0, OLD: 5.0})], True, OLD),
        ([rank(0, **{NEW: 0, OLD: 5.0}), rank(1, OLD, running=False, **{NEW: 0, OLD: 5.0})], True, OLD),
        # Killed while the old one was marked: one host has the mark.
        ([rank(0, OLD, old=5.0), rank(1, OLD, old=0)], True, OLD),
        # A new host takes no part in the old version.
        ([*both(OLD, old=5.0), rank(2)], True, OLD),
        # It runs, and the run that started it was killed before it served; it never served.
        (both(OLD, old=0), True, OLD),
        (both(OLD, running=False, old=0), True, ""),
        # A host lost its container; a rank is there twice.
        ([rank(0, OLD, old=5.0), rank(1)], True, ""),
        ([{**rank(1, OLD, old=5.0, older=3.0), "rank": number} for number in (0, 1)], True, ""),
    ],
)
def test_what_restarts_and_what_it_returns_to(
    ranks: list[dict[str, Any]], restart: bool, fallback: str
) -> None:
    found = change(ranks)
    assert (found["restart"], found["fallback"]) == (restart, fallback)
    assert not fallback or found["fallback_hosts"] == ["node0", "node1"]


def test_a_shape_with_fewer_hosts_returns_to_no_other_version_than_what_runs() -> None:
    here = [rank(0, OLD, **{OLD: 5.0})]
    here[0]["seen"]["generations"][OLDER] = {"worked_at": 3.0, "rank": 0, "ranks": 1}
    assert change(here)["fallback"] == ""
    here[0]["seen"]["current"]["running"] = False
    assert change(here)["fallback"] == OLDER


def test_a_rollback_that_fails_returns_to_what_runs() -> None:
    """Also if no run saw it serve."""
    assert rollback(both(OLDER, old=5.0, older=3.0, third=1.0), "third")["fallback"] == OLDER
    found = rollback(both(NEW, **{NEW: 0, OLD: 5.0}), OLD)
    assert (found["generation"], found["fallback"], found["fallback_hosts"]) == (OLD, NEW, ["node0", "node1"])
    assert NEW in found["keep"]
    # A rank that ended: nothing serves that could be returned to.
    ended = [rank(0, NEW, **{NEW: 0, OLD: 5.0}), rank(1, NEW, running=False, **{NEW: 0, OLD: 5.0})]
    assert rollback(ended, OLD)["fallback"] == ""


def test_rollback_goes_to_the_version_before_and_can_return() -> None:
    found = rollback(both(OLD, old=5.0, older=3.0))
    assert (found["generation"], found["fallback"]) == (OLDER, OLD)
    back = rollback(both(OLDER, old=5.0, older=9.0))
    assert (back["generation"], back["fallback"]) == (OLD, OLDER)
    # With one version, or with a rank twice, it has nowhere to go.
    assert rollback(both(OLD, old=5.0))["generation"] == ""
    twice = [{**rank(1, OLD, old=5.0, older=3.0), "rank": number} for number in (0, 1)]
    assert rollback(twice)["generation"] == ""


def replica(current: str, **served: float) -> list[dict[str, Any]]:
    """A replica's two ranks; `served` is when each version did, 0 for never.

    Version v1 was planned at 1, and so on; its generation is g1.
    """
    ranks = both(current, **{f"g{version[1:]}": at for version, at in served.items()})
    for one in ranks:
        for version, at in served.items():
            its = {"planned_at": float(version[1:]), **({"served_at": at} if at else {})}
            one["seen"]["generations"][f"g{version[1:]}"]["versions"] = {version: its}
    return ranks


def returning(ranks: list[dict[str, Any]], planned_at: float) -> list[dict[str, Any]]:
    """A rollback to v1 has begun on the replica."""
    for one in ranks:
        one["seen"]["generations"]["g1"]["versions"]["v1"].update(planned_at=planned_at, returned=True)
    return ranks


V2, V3 = replica("g2", v1=1.0, v2=2.0), replica("g3", v1=1.0, v2=2.0, v3=3.0)
V2_OR_V3 = replica("g2", v2=2.0, v3=0.0), replica("g3", v2=2.0, v3=0.0)


@pytest.mark.parametrize(
    ("state", "version"),
    [
        pytest.param([V2] * 2, "v1", id="served-whole"),
        # Killed after the first replica: the second one never left v2.
        pytest.param([replica("g3", v2=2.0, v3=3.0), V2], "v2", id="interrupted"),
        pytest.param([V3, replica("g2", v1=1.0, v2=2.0, v3=0.0)], "v2", id="second-failed"),
        # The rollback itself was killed: it goes on, and does not turn round.
        pytest.param([returning(replica("g1", v1=9.0, v2=2.0), 8), V2], "v1", id="rollback-interrupted"),
        # The inventory was set back to v2, and `up` was killed once more: v2 served last on all replicas.
        pytest.param([V3, V2], "v2", id="set-back"),
        # v3 has served before; the second `up` to it was killed after the first replica.
        pytest.param(
            [replica("g3", v2=5.0, v3=9.0), replica("g2", v2=6.0, v3=3.0)], "v2", id="up-again-interrupted"
        ),
        pytest.param([replica("g1", v1=9.0, v2=2.0)] * 2, "v2", id="second-rollback"),
        # Killed while the ranks of one replica changed their names.
        pytest.param([[V2_OR_V3[1][0], V2_OR_V3[0][1]], V2], "v2", id="amid-names"),
        pytest.param([replica("g2", v2=2.0), V2], "", id="none-on-all"),
        pytest.param([replica("g2", v1=0.0, v2=2.0), V2], "", id="served-on-one"),
    ],
)
def test_a_rollback_returns_all_replicas_to_one_version(
    state: list[list[dict[str, Any]]], version: str
) -> None:
    found = previous({str(number): ranks for number, ranks in enumerate(state)})
    assert found["version"] == version
    assert set(found["generations"].values()) == ({f"g{version[1:]}"} if version else set())
    for number, ranks in enumerate(state if version else ()):
        change = rollback(ranks, found["generations"][str(number)], replicas=2)
        assert change["generation"] == f"g{version[1:]}"
        there = all(one["seen"]["current"]["generation"] == change["generation"] for one in ranks)
        assert change["restart"] is not there


def test_a_replica_that_a_version_did_not_change_belongs_to_both() -> None:
    same = replica("g2", v2=2.0)
    for one in same:
        one["seen"]["generations"]["g2"]["versions"]["v1"] = {"planned_at": 1.0, "served_at": 1.0}
    found = previous({"a": V2, "b": same})
    assert (found["version"], found["generations"]) == ("v1", {"a": "g1", "b": "g2"})


def test_records_without_versions_are_versions_of_their_own() -> None:
    found = previous({"a": both(OLD, old=5.0, older=3.0)})
    assert (found["version"], found["served_at"]) == (OLDER, 3.0)


def test_with_several_replicas_every_version_stays_until_all_serve() -> None:
    ranks = both(OLD, old=5.0, older=3.0)
    assert change(ranks, replicas=2, standbys=["standby-1"])["keep"] == [NEW, OLD, OLDER, "standby-1"]
    state = [replica("g3", v1=1.0, v2=2.0, v3=3.0, v4=0.0), replica("g3", v1=1.0, v3=3.0)]
    ranks = [{**one, "replica": name} for name, two in zip("ab", state, strict=True) for one in two]
    found = {name: set(keep) for name, keep in kept(ranks).items()}
    assert found == {"a": {"g3", "g1", "g4"}, "b": {"g3", "g1"}}


def test_the_ranks_of_a_host_are_those_of_several_replicas() -> None:
    seen = {"current": {}, "generations": {}}
    results = [{"item": {"name": name, "rank": 0}, **seen} for name in ("engine-0", "engine-1")]
    ranks = [*host_ranks(results, "node1"), *host_ranks(results[:1], "node2")]
    found = {name: [one["host"] for one in here] for name, here in by_replica(ranks).items()}
    assert found == {"engine-0": ["node1", "node2"], "engine-1": ["node1"]}


def test_a_rollback_that_ended_before_the_start_goes_on() -> None:
    """Its generation has the name on all hosts; a rollback that served is complete."""
    ranks = returning(replica("g1", v1=1.0, v2=2.0), 3)
    assert previous({"a": ranks})["version"] == "v1"
    for one in ranks:
        one["seen"]["generations"]["g1"]["versions"]["v1"]["served_at"] = 4.0
    assert previous({"a": ranks})["version"] == "v2"


def test_a_host_that_returns_in_another_ranks_place_gets_a_container_of_that_rank() -> None:
    """Its own one, of rank 1, has the same specification as that of the host that took rank 1."""
    before = [rank(number) for number in (0, 1, 2)]
    old = change(before)["generation"]
    first, second = (rank(number, old, **{old: 1.0}) for number in (0, 1))
    found = change([first, {**second, "host": "spare"}, {**second, "rank": 2}])
    assert found["generation"] != old
    assert found["restart"]
