"""Who fetches what: each shard once, from the node that has time; others take over what one gives up."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fake_hub import MODEL, FakeHub, running
from headfirst.decide.plan.weights import duration
from headfirst.node.weights import sharing
from headfirst.node.weights.fetch.fetch_run import MOST_AT_ONCE
from headfirst.node.weights.files import list_files
from headfirst.node.weights.proof.verify import verify
from headfirst.node.weights.sharing import Sharing
from headfirst.node.weights.transfer.board import Member
from transfers import LIMIT_S, Members
from weights_checkpoints import fp8_weight, write_checkpoint

SHARDS = [f"model-{number:02}.safetensors" for number in range(32)]
MB = 1_000_000


def everybody(_name: str) -> range:
    return range(99)


def heard(_index: int) -> float:
    return 0.0


def able(count: int, **changes: object) -> list[Member]:
    return [Member(fetches=True, **changes) for _ in range(count)]  # type: ignore[arg-type]


def run_to_the_end(
    found: Sharing, members: list[Member], proven: frozenset[str] | set[str] = frozenset()
) -> list[set[str]]:
    """Each member fetches what it was given, one file at a time, until all are proven."""
    proven = set(proven)
    while proven < set(SHARDS):
        found.step(members, heard, proven, proven, 0.0)
        assert any(names - proven for names in found.given)
        for names in found.given:
            proven |= set(sorted(names - proven)[:1])
    return found.given


def test_every_file_is_given_to_one_member() -> None:
    given = run_to_the_end(Sharing(SHARDS, 4, "all", everybody), able(4))
    assert sorted(name for names in given for name in names) == SHARDS
    assert all(len(names) == 8 for names in given)


def test_the_head_alone_fetches_where_that_is_asked_for() -> None:
    given = run_to_the_end(Sharing(SHARDS, 4, "head", everybody), able(4))
    assert [len(names) for names in given] == [32, 0, 0, 0]


def test_who_does_not_reach_the_source_is_given_nothing() -> None:
    members = able(3)
    members[1] = Member(fetches=False)
    assert not run_to_the_end(Sharing(SHARDS, 3, "all", everybody), members)[1]


@pytest.mark.parametrize("gone", [Member(fetches=True, error="disk full"), Member(fetches=False)])
def test_what_a_member_gives_up_others_fetch(gone: Member) -> None:
    found = Sharing(SHARDS, 2, "all", everybody)
    found.step(able(2), heard, set(), set(), 0.0)
    proven = {min(found.given[1])}
    lost = found.given[1] - proven
    assert lost
    found.step([*able(1), gone], heard, dict.fromkeys(proven).keys(), proven, 1.0)  # a board's view
    assert found.given[1] == proven
    assert run_to_the_end(found, [*able(1), gone], proven)[0] == set(SHARDS) - proven


def test_a_silent_member_loses_its_files() -> None:
    found = Sharing(SHARDS, 2, "all", everybody)
    found.step(able(2), heard, set(), set(), 0.0)
    found.step(able(2), lambda index: 21.0 if index else 0.0, set(), set(), 1.0)
    assert not found.given[1]


@pytest.mark.parametrize("holder", [0, 2])
@pytest.mark.parametrize("error", ["", "disk full"])
def test_the_head_fetches_what_a_gone_member_stated_and_nobody_has(holder: int, error: str) -> None:
    found = Sharing(SHARDS, 3, "all", everybody)
    found.step(able(3), heard, set(), set(), 0.0)
    elsewhere, nowhere = sorted(found.given[1])
    members = able(3)
    members[1] = replace(members[1], error=error, have=frozenset({elsewhere, nowhere}))
    members[holder] = replace(members[holder], have=frozenset({elsewhere}))
    silent = heard if error else lambda index: 21.0 if index == 1 else 0.0
    fetched = dict.fromkeys([elsewhere, nowhere]).keys()  # a board's view
    assert found.step(members, silent, fetched, set(), 1.0)
    assert found.given[1] == {elsewhere}
    assert nowhere in found.given[0]


def test_the_head_fetches_the_rest_once_a_member_is_sent_what_is_wrong() -> None:
    found = Sharing(SHARDS, 2, "all", everybody)
    found.step(able(2), heard, set(), set(), 0.0)
    proven = {min(found.given[1])}
    assert found.fall_back(proven)
    assert found.given == [set(SHARDS) - proven, proven]
    assert not found.fall_back(proven)
    assert not found.step(able(2), heard, proven, proven, 1.0)


def test_who_has_a_file_is_given_it() -> None:
    members = [Member(), Member(fetches=True, have=frozenset(SHARDS[:20])), Member(fetches=True)]
    found = Sharing(SHARDS, 3, "head", everybody)
    found.step(members, heard, set(), set(), 0.0)
    assert found.given[1] == set(SHARDS[:20])


def test_who_has_a_file_is_waited_for_while_it_asks_for_the_list() -> None:
    members = [Member(), Member(have=frozenset(SHARDS[:1]))]
    found = Sharing(SHARDS, 2, "all", everybody)
    found.step(members, heard, set(), set(), 0.0)
    assert SHARDS[0] not in found.given[0]
    found.step([Member(), Member(have=frozenset(SHARDS[:1]), fetches=True)], heard, set(), set(), 2.0)
    assert SHARDS[0] in found.given[1]


def test_who_has_a_file_and_does_not_reach_the_source_is_not_waited_for_long() -> None:
    members = [Member(), Member(have=frozenset(SHARDS[:1]))]
    found = Sharing(SHARDS, 2, "all", everybody)
    found.step(members, heard, set(), set(), 0.0)
    found.step(members, heard, set(found.given[0]), set(), 11.0)
    assert SHARDS[0] in found.given[0]


def test_a_file_goes_to_a_member_that_needs_it() -> None:
    def half(name: str) -> tuple[int]:
        return (SHARDS.index(name) // 16,)

    given = run_to_the_end(Sharing(SHARDS, 2, "all", half), able(2))
    assert given == [set(SHARDS[:16]), set(SHARDS[16:])]


def test_files_in_flight_are_a_part_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fetched at the very end must still be passed on. The plan counts with the same figures."""
    assert (duration.SHARDS_AT_ONCE, duration.ROUNDS) == (MOST_AT_ONCE, sharing._ROUNDS)
    for shards, count in ((32, 4), (163, 4), (163, 2)):
        found = Sharing([str(number) for number in range(shards)], count, "all", everybody)
        found.step(able(count), heard, set(), set(), 0.0)
        at_once = duration.WeightsWork(shards, 0, 1, count, False, True, fetchers=count).at_once_bytes
        assert sum(len(names) for names in found.given) == at_once + count * sharing._AHEAD


@pytest.mark.parametrize(("together", "all_fetch"), [(120, False), (300, True)])
def test_auto_measures_whether_all_are_faster(together: int, all_fetch: bool) -> None:
    found = Sharing([str(number) for number in range(1000)], 3, "auto", everybody)
    fetched, now, proven = 0, 0.0, set[str]()
    while now < 60:
        others = any(names - proven for names in found.given[1:])
        fetched += (together if others else 100) * MB
        members = able(3)
        members[0] = Member(fetched=fetched)
        proven |= {min(names - proven) for names in found.given if names - proven}
        found.step(members, heard, proven, proven, now)
        now += 1.0
    assert found.reason.startswith("fetched by all nodes" if all_fetch else "fetched by the head alone")
    assert len(found.given[1]) > 40 if all_fetch else len(found.given[1]) < 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_checkpoint(
        tmp_path / "source",
        {name: {f"{name}.weight": fp8_weight(512, 512, at)} for at, name in enumerate(SHARDS)},
    )
    return tmp_path / "source"


@contextmanager
def hub_of(source: Path) -> Iterator[FakeHub]:
    with running({name: (source / name).read_bytes() for name in list_files(source)}) as hub:
        yield hub


def start(members: Members, hubs: list[str], mode: str) -> list[subprocess.Popen[str]]:
    command = ["@/model", "--model", MODEL, "--fetch", mode]
    return [
        members.start(index, command, HF_ENDPOINT=hub, HF_HOME=str(members.home(index) / "hf"))
        for index, hub in enumerate(hubs)
    ]


def end(running: list[subprocess.Popen[str]]) -> None:
    try:
        for process in running:
            _, errors = process.communicate(timeout=LIMIT_S)
            assert process.returncode == 0, errors
    finally:
        for process in running:
            process.kill()
            process.wait()


def assert_all_have(members: Members, source: Path) -> None:
    for index in range(members.count):
        folder = members.home(index) / "model"
        verify(folder, deep=True)
        assert all((folder / name).read_bytes() == (source / name).read_bytes() for name in SHARDS)


def await_that(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_hub_sends_each_shard_once_to_three_nodes_that_share_the_work(
    source: Path, tmp_path: Path
) -> None:
    members = Members(tmp_path, 3)
    with hub_of(source) as hub:
        hub.rate = 2 * MB
        end(start(members, [hub.url] * 3, "all"))
        assert all(hub.sent[name] == (source / name).stat().st_size for name in SHARDS)
    assert_all_have(members, source)
    size = sum((source / name).stat().st_size for name in SHARDS)
    received = [members.result(index)["received"] for index in range(3)]
    assert all(0 < count < size for count in received)
    assert sum(received) < 2.1 * size, "three copies, of which the hub sent one"


def test_a_node_without_a_way_to_the_hub_receives(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 3)
    with hub_of(source) as hub:
        end(start(members, [hub.url, "http://127.0.0.1:9", hub.url], "all"))
        assert all(hub.sent[name] == (source / name).stat().st_size for name in SHARDS)
    assert_all_have(members, source)


def test_what_a_killed_node_was_fetching_others_fetch(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 3)
    with hub_of(source) as hub:
        hub.rate = MB
        running = start(members, [hub.url] * 3, "all")
        await_that(lambda: sum(hub.sent.values()) > 2 * MB)
        running[2].kill()
        running[2].wait()
        hub.rate = 0
        running[2] = members.start(2, ["@/model"])  # it comes back and only receives
        end(running)
    assert_all_have(members, source)


def test_a_second_run_fetches_nothing(source: Path, tmp_path: Path) -> None:
    members = Members(tmp_path, 2)
    with hub_of(source) as hub:
        end(start(members, [hub.url] * 2, "all"))
        before = hub.sent.total()
        (members.home(0) / "model" / SHARDS[3]).unlink()
        end(start(members, [hub.url] * 2, "all"))
        assert hub.sent.total() == before, "the other node had it"
    assert_all_have(members, source)
