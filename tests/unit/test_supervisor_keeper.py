"""The decisions of the supervisor of rank 0, on simulated ranks, engine and time."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from headfirst.node.supervisor import host_state, memory
from headfirst.node.supervisor.decision import (
    HealthReading,
    Observation,
    ReadLogs,
    Stop,
    begin,
    decide,
)
from headfirst.node.supervisor.events import Events
from headfirst.node.supervisor.keeper import Keeper
from headfirst.node.supervisor.memory import MOST_FAILED_STARTS, GenerationMemory, Memories
from headfirst.node.supervisor.messages import Seen
from supervisor_model import record

HANG_S, START_S = 60.0, 300.0
RECORD = replace(record(2), hang_s=HANG_S, start_s=START_S)


class World:
    """Two ranks, an engine that serves `load_s` after both run, and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.seen: list[Seen | None] = [self._running(0), self._running(1)]
        self.away: set[int] = set()
        self.starts = 0
        self.load_s = 5.0
        self.dies = False  # rank 1 ends while it loads
        self.hangs = False
        self.refuses = ""  # why Docker refuses to start rank 1
        self.exits = False  # rank 1 ends before its node answers that it was started
        self.calls: list[str] = []

    def _running(self, rank: int, start: int = 0) -> Seen:
        return Seen(generation="g1", running=True, start=f"{rank}@{start}")

    def end(self, rank: int, why: str = "it ended with exit code 1") -> None:
        self.seen[rank] = Seen(generation="g1", ended=why, start="ended")

    def look(self) -> list[Seen | None]:
        return [None if rank in self.away else one for rank, one in enumerate(self.seen)]

    def stop(self, ranks: Sequence[int]) -> list[Seen | None]:
        self.calls.append(f"stop {[*ranks]}")
        for rank in ranks:
            one = self.seen[rank]
            if rank not in self.away and one is not None and one.running:
                self.end(rank, "it ended with exit code 143")
        return [self.look()[rank] for rank in ranks]

    def start(self, ranks: Sequence[int]) -> list[Seen | None]:
        self.calls.append(f"start {[*ranks]}")
        self.starts += ranks[0] == 0
        for rank in ranks:
            if rank == 1 and (self.refuses or self.exits):
                self.end(rank, f"it did not start: {self.refuses}" if self.refuses else "exit code 1")
            elif rank not in self.away:
                self.seen[rank] = self._running(rank, self.starts)
        if self.refuses and 1 in ranks:  # the node reports it once, in its answer
            return [
                Seen(problem=f"Docker: {self.refuses}") if rank == 1 else self.seen[rank] for rank in ranks
            ]
        return [self.look()[rank] for rank in ranks]

    def logs(self) -> list[list[str]]:
        return [[f"the last line of rank {rank}"] for rank in (0, 1)]

    def close(self) -> None:
        """Nothing is open."""


class Engine:
    """Serves `load_s` after its start and computes until it hangs."""

    def __init__(self, world: World) -> None:
        self._world, self._begun = world, world.now
        self._alive_at: float | None = None

    @property
    def serves(self) -> bool:
        if not self._world.hangs and self._world.now - self._begun >= self._world.load_s:
            self._alive_at = self._world.now
        return self._alive_at is not None

    @property
    def silent_s(self) -> float:
        alive_at = self._alive_at if self.serves else None
        return self._world.now - (self._begun if alive_at is None else alive_at)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(host_state, "uptime", lambda: world.now)
    return world


@pytest.fixture
def keeper(world: World, tmp_path: Path) -> Keeper:
    return new_keeper(world, tmp_path)


def new_keeper(world: World, folder: Path) -> Keeper:
    events = Events(folder / "events.jsonl")
    return Keeper(RECORD, world, lambda record: Engine(world), events, Memories(folder, folder))


def after(world: World, keeper: Keeper, seconds: int) -> str:
    """The phase after so many steps, one a second."""
    for _ in range(seconds):
        world.now += 1
        if world.dies and keeper.state.status.phase == "starting":
            world.end(1)
        keeper.step()
    return keeper.state.status.phase


def times_of_starts(world: World, keeper: Keeper, seconds: int) -> list[float]:
    """When the replica was started, in so many steps."""
    started = []
    for _ in range(seconds):
        before = world.starts
        after(world, keeper, 1)
        started += [world.now] * (world.starts - before)
    return started


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_it_adopts_ranks_that_serve_already(world: World, keeper: Keeper) -> None:
    assert after(world, keeper, 10) == "serving"
    assert world.calls == [] and keeper.state.memory.restarts == 0


@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_that_ends_restarts_all_the_head_first(
    world: World, keeper: Keeper, tmp_path: Path, rank: int
) -> None:
    after(world, keeper, 10)
    world.end(rank)
    assert after(world, keeper, 10) == "serving"
    assert events(tmp_path)[-1]["text"] == "it serves again, 5 s after its start"
    assert world.calls[-2:] == ["start [0]", "start [1]"] and "stop [0, 1]" in world.calls[0]
    assert keeper.state.memory.restarts == 1
    assert keeper.state.memory.last_reason == f"rank {rank} ({RECORD.ranks[rank]}): it ended with exit code 1"


def test_the_rank_that_was_killed_or_started_alone_is_the_cause(world: World, keeper: Keeper) -> None:
    after(world, keeper, 10)
    world.end(0)
    world.end(1, "it was killed: out of memory")
    after(world, keeper, 1)
    assert keeper.state.memory.last_reason == "rank 1 (10.0.0.2): it was killed: out of memory"
    assert after(world, keeper, 10) == "serving"
    world.seen[1] = world._running(1, 77)
    after(world, keeper, 2)
    assert "it was started without the others" in keeper.state.memory.last_reason


def test_an_engine_that_hangs_is_started_again(world: World, keeper: Keeper) -> None:
    after(world, keeper, 10)
    world.hangs = True
    assert after(world, keeper, int(HANG_S)) == "serving"
    after(world, keeper, 2)
    assert "the engine hangs" in keeper.state.memory.last_reason
    world.hangs = False
    assert after(world, keeper, 10) == "serving"


def test_a_node_that_is_silent_ends_nothing_while_the_engine_computes(world: World, keeper: Keeper) -> None:
    after(world, keeper, 10)
    world.away = {1}
    assert after(world, keeper, 600) == "serving"
    assert world.calls == [] and "10.0.0.2" in keeper.state.status.text


def test_nothing_starts_before_every_node_answers(world: World, keeper: Keeper, tmp_path: Path) -> None:
    after(world, keeper, 10)
    world.away = {1}
    world.end(0)
    assert after(world, keeper, 120) == "down"
    assert not [call for call in world.calls if call.startswith("start")]
    assert keeper.state.status.text == "waiting for rank 1 (10.0.0.2)"
    assert [event["kind"] for event in events(tmp_path)] == ["ended", "waiting"]
    world.away = set()
    assert after(world, keeper, 10) == "serving"


def test_failed_starts_have_growing_pauses_and_an_end(world: World, keeper: Keeper) -> None:
    after(world, keeper, 10)
    world.dies = True
    world.end(1)
    started = times_of_starts(world, keeper, 600)
    assert keeper.state.status.phase == "gave_up"
    assert len(started) == MOST_FAILED_STARTS
    pauses = [later - earlier for earlier, later in itertools.pairwise(started)]
    assert pauses == sorted(pauses) and pauses[-1] > 30
    assert "10.0.0.2" in keeper.state.status.text
    assert f"{MOST_FAILED_STARTS} starts in a row failed" in keeper.state.status.text


def test_it_remembers_that_it_gave_up_until_it_is_asked_to_go_on(
    world: World, keeper: Keeper, tmp_path: Path
) -> None:
    test_failed_starts_have_growing_pauses_and_an_end(world, keeper)
    again = new_keeper(world, tmp_path)
    assert after(world, again, 60) == "gave_up"
    world.dies = False
    Memories(tmp_path, tmp_path).ask_again(RECORD.name)
    assert after(world, again, 20) == "serving"


def test_a_person_who_asks_once_gets_six_further_starts(world: World, keeper: Keeper, tmp_path: Path) -> None:
    test_failed_starts_have_growing_pauses_and_an_end(world, keeper)
    Memories(tmp_path, tmp_path).ask_again(RECORD.name)
    assert len(times_of_starts(world, keeper, 900)) == 6
    assert keeper.state.status.phase == "gave_up"
    assert [event["kind"] for event in events(tmp_path)].count("resumed") == 1


def test_who_asks_while_it_still_tries_gets_no_further_start(
    world: World, keeper: Keeper, tmp_path: Path
) -> None:
    after(world, keeper, 10)
    world.dies = True
    world.end(1)
    started = 0
    for _ in range(600):
        if keeper.state.status.phase != "gave_up":
            Memories(tmp_path, tmp_path).ask_again(RECORD.name)
        started += len(times_of_starts(world, keeper, 1))
    assert started == 6


def test_ranks_that_a_person_starts_after_it_gave_up_are_adopted_together(
    world: World, keeper: Keeper, tmp_path: Path
) -> None:
    test_failed_starts_have_growing_pauses_and_an_end(world, keeper)
    world.dies, calls = False, len(world.calls)
    world.seen[0] = world._running(0, 88)
    assert after(world, keeper, 5) == "gave_up"
    world.seen[1] = Seen(generation="g1", held=True, ended="it ended with exit code 1")
    assert after(world, keeper, 5) == "held"
    world.away = {1}
    assert after(world, keeper, 5) == "gave_up"
    world.away, world.seen[1] = set(), world._running(1, 88)
    assert after(world, keeper, 10) == "serving"
    assert len(world.calls) == calls
    assert new_keeper(world, tmp_path).state.status.phase == "watching"


def test_a_hold_in_between_begins_no_further_attempt(world: World, keeper: Keeper) -> None:
    test_failed_starts_have_growing_pauses_and_an_end(world, keeper)
    starts = world.starts
    world.seen[0] = Seen(generation="g1", held=True, ended="it ended with exit code 1")
    assert after(world, keeper, 5) == "held"
    world.end(0)
    world.away = {1}
    assert after(world, keeper, 60) == "gave_up"
    world.away = set()
    assert after(world, keeper, 60) == "gave_up"
    assert world.starts == starts


def test_a_memory_of_another_version_is_read_as_far_as_it_is_valid(tmp_path: Path) -> None:
    document = {"generation": "g1", "restarts": 7, "failed_starts": "many", "early_ends": -1, "later": True}
    (tmp_path / "headfirst-engine.json").write_text(json.dumps(document))
    found = Memories(tmp_path, tmp_path).load("headfirst-engine", "g1")
    assert (found.restarts, found.failed_starts, found.early_ends) == (7, 0, 0)


def test_a_new_generation_has_nothing_of_the_one_before_but_the_length_of_its_start(tmp_path: Path) -> None:
    memories = Memories(tmp_path, tmp_path)
    memories.save(
        "headfirst-engine",
        GenerationMemory("g1", early_ends=6, failed_starts=6, gave_up="it did", start_s=9.0),
    )
    assert memories.load("headfirst-engine", "g2") == GenerationMemory("g2", start_s=9.0)


def test_the_event_of_an_end_has_the_last_lines_of_all_ranks(
    world: World, keeper: Keeper, tmp_path: Path
) -> None:
    after(world, keeper, 10)
    world.end(1)
    after(world, keeper, 1)
    [ended] = [event for event in events(tmp_path) if event["kind"] == "ended"]
    assert (ended["rank"], ended["log"]) == (1, ["the last line of rank 1"])
    assert ended["logs"] == {"0": ["the last line of rank 0"]}


def test_a_replica_that_serves_for_long_between_its_ends_is_started_at_once(
    world: World, keeper: Keeper
) -> None:
    after(world, keeper, 10)
    for number in range(3 * MOST_FAILED_STARTS):
        after(world, keeper, 70)
        world.end(1)
        assert after(world, keeper, 10) == "serving", number


def test_a_replica_that_serves_for_a_moment_between_its_ends_is_always_started_again(
    world: World, keeper: Keeper
) -> None:
    after(world, keeper, 10)
    for number in range(3 * MOST_FAILED_STARTS):
        world.end(1)
        assert any(after(world, keeper, 1) == "serving" for _ in range(90)), number
        after(world, keeper, 3)
    assert (keeper.state.memory.early_ends, keeper.state.memory.failed_starts) == (3 * MOST_FAILED_STARTS, 0)
    after(world, keeper, 61)
    assert keeper.state.memory.early_ends == 0


def test_a_container_that_cannot_be_started_is_tried_again_with_growing_pauses(
    world: World, keeper: Keeper, tmp_path: Path
) -> None:
    after(world, keeper, 70)
    world.refuses = "no space left on device"
    world.end(1)
    started = times_of_starts(world, keeper, 900)
    pauses = [later - earlier for earlier, later in itertools.pairwise(started)]
    assert pauses[:4] == [5, 15, 30, 60] and set(pauses[4:]) == {60}
    assert keeper.state.status.phase == "down" and "no space left" in keeper.state.status.text
    assert not any(one and one.running for one in world.seen)
    refused = [event["text"] for event in events(tmp_path) if event["kind"] == "refused"]
    assert len(refused) == len(started) and "3 times in a row" in refused[2]
    world.refuses = ""
    assert after(world, keeper, 70) == "serving"
    assert keeper.state.memory.refused_starts == keeper.state.memory.failed_starts == 0


def test_a_rank_that_ends_as_soon_as_it_is_started_is_a_failed_start(world: World, keeper: Keeper) -> None:
    after(world, keeper, 70)
    world.exits = True
    world.end(1)
    assert len(times_of_starts(world, keeper, 900)) == MOST_FAILED_STARTS
    assert keeper.state.status.phase == "gave_up"


def test_a_head_that_ends_as_soon_as_it_is_started_is_a_failed_start(
    world: World, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    after(world, keeper, 70)
    start = world.start

    def exit_at_once(ranks: Sequence[int]) -> list[Seen | None]:
        start(ranks)
        world.end(0)
        return [world.seen[rank] for rank in ranks]

    monkeypatch.setattr(world, "start", exit_at_once)
    world.end(0)
    assert len(times_of_starts(world, keeper, 900)) == MOST_FAILED_STARTS
    assert keeper.state.status.phase == "gave_up" and "start [1]" not in world.calls


def test_failed_starts_before_a_service_do_not_count(world: World, keeper: Keeper) -> None:
    after(world, keeper, 10)
    for number in range(3):
        world.dies = True
        world.end(1)
        assert any(
            after(world, keeper, 1) == "down" and keeper.state.memory.failed_starts == 3 for _ in range(120)
        )
        world.dies = False
        assert any(after(world, keeper, 1) == "serving" for _ in range(70)), number
        assert keeper.state.memory.failed_starts == 0 and keeper.state.memory.early_ends > 0
        after(world, keeper, 70)


def test_a_rank_that_hangs_in_the_last_start_is_stopped(world: World, keeper: Keeper, tmp_path: Path) -> None:
    after(world, keeper, 10)
    world.load_s = START_S + 100
    world.end(1)
    after(world, keeper, MOST_FAILED_STARTS * (int(START_S) + 70))
    assert keeper.state.status.phase == "gave_up" and world.calls[-1] == "stop [0, 1]"
    assert [event["kind"] for event in events(tmp_path)][-2:] == ["ended", "gave_up"]


def test_a_start_that_takes_too_long_has_failed(world: World, keeper: Keeper) -> None:
    after(world, keeper, 70)
    world.load_s = START_S + 100
    world.end(0)
    after(world, keeper, int(START_S) + 10)
    assert keeper.state.memory.last_reason == f"it did not serve within {START_S:.0f} s"
    assert keeper.state.memory.failed_starts == keeper.state.memory.early_ends == 1


def test_ranks_that_a_person_starts_during_a_pause_are_adopted(world: World, keeper: Keeper) -> None:
    after(world, keeper, 70)
    world.refuses = "no space left on device"
    world.end(1)
    after(world, keeper, 120)
    starts = world.starts
    world.seen = [world._running(0, 88), world._running(1, 88)]
    assert after(world, keeper, 100) == "serving"
    assert world.starts == starts and keeper.state.memory.start_s is None


@pytest.mark.parametrize(
    "held",
    [
        Seen(generation="g1", held=True, ended="it ended with exit code 0"),
        Seen(held=True, problem="Docker: it does not answer"),
    ],
)
def test_a_held_replica_is_left_alone(world: World, keeper: Keeper, held: Seen) -> None:
    after(world, keeper, 10)
    world.seen[1] = held
    if held.problem:
        world.end(0)
    assert after(world, keeper, 60) == "held"
    assert world.calls == []
    world.end(1)
    assert after(world, keeper, 20) == "serving"


def test_what_failed_before_a_hold_ends_nothing_after_it() -> None:
    """A controller begins while the logs are read, and starts all ranks again."""
    first, second = (tuple(Seen("g1", True, f"{rank}@{start}") for rank in (0, 1)) for start in (1, 2))
    ended = (first[0], Seen("g1", ended="it ended with exit code 1"))
    state, serves = begin(RECORD, GenerationMemory("g1"), 0.0), HealthReading(True, 0.0)
    for now, observed in enumerate((Observation(first), Observation(first, serves))):
        state, _ = decide(state, observed, now)
    state, actions = decide(state, Observation(ended, serves), 3.0)
    assert actions == (ReadLogs(),)
    state, actions = decide(state, Observation((replace(first[0], held=True), ended[1])), 3.1)
    assert state.status.phase == "held" and not any(isinstance(action, Stop) for action in actions)
    state, actions = decide(state, Observation(second), 60.0)
    assert (state.status.phase, actions) == ("starting", ())


@pytest.mark.parametrize(
    ("other", "what"),
    [(Seen("g2", running=True, start="other"), "another version of it"), (Seen(), "no container")],
)
def test_ranks_of_another_generation_are_left_alone(
    world: World, keeper: Keeper, other: Seen, what: str
) -> None:
    world.seen[1] = other
    assert after(world, keeper, 60) == "held"
    assert keeper.state.status.text == f"rank 1 (10.0.0.2) has {what}"
    assert world.calls == []


def test_the_boot_of_a_node_counts_no_failure(world: World, tmp_path: Path) -> None:
    world.end(0)
    world.end(1)
    world.away = {1}
    keeper = new_keeper(world, tmp_path)
    assert after(world, keeper, 60) == "down"
    world.away = set()
    assert after(world, keeper, 10) == "serving"
    assert keeper.state.memory.failed_starts == keeper.state.memory.early_ends == 0


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(memory, "replace_file", full)
    monkeypatch.setattr(Path, "open", full)


def test_on_a_full_disk_six_failed_starts_are_the_last(world: World, keeper: Keeper, full_disk: None) -> None:
    after(world, keeper, 70)
    world.dies = True
    world.end(1)
    assert len(times_of_starts(world, keeper, 3600)) == MOST_FAILED_STARTS
    assert keeper.state.status.phase == "gave_up"


def test_what_a_full_disk_has_not_taken_is_saved_later(
    world: World, keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Memories, "save", lambda *_: False)
        test_failed_starts_have_growing_pauses_and_an_end(world, keeper)
    after(world, keeper, 1)
    assert new_keeper(world, tmp_path).state.status.phase == "gave_up"


def test_a_replica_that_serves_is_adopted_beside_a_silent_node(world: World, keeper: Keeper) -> None:
    """As after an upgrade, which restarts all supervisors at once."""
    world.away = {1}
    assert after(world, keeper, 30) == "serving"
    world.away = set()
    assert after(world, keeper, 30) == "serving"
    assert world.calls == [] and keeper.state.memory.restarts == 0


def test_a_rank_that_ended_while_its_node_was_silent_restarts_all(world: World, keeper: Keeper) -> None:
    world.away = {1}
    after(world, keeper, 30)
    world.end(1)
    assert after(world, keeper, 30) == "serving"
    world.away = set()
    assert after(world, keeper, 10) == "serving"
    assert world.calls[-2:] == ["start [0]", "start [1]"]
    assert "rank 1 (10.0.0.2): it ended" in keeper.state.memory.last_reason


def test_a_rank_that_was_started_again_while_its_node_was_silent_restarts_all(
    world: World, keeper: Keeper
) -> None:
    """Its first start is known only since its node answered."""
    world.away = {1}
    after(world, keeper, 10)
    world.away = set()
    after(world, keeper, 10)
    world.away = {1}
    after(world, keeper, 10)
    world.away, world.seen[1] = set(), world._running(1, 77)
    after(world, keeper, 2)
    assert "it was started without the others" in keeper.state.memory.last_reason


def test_a_hang_is_noticed_beside_a_node_that_was_silent_from_the_start(world: World, keeper: Keeper) -> None:
    world.away = {1}
    after(world, keeper, 30)
    world.hangs = True
    assert after(world, keeper, int(HANG_S) + 10) == "down"
    assert "the engine hangs" in keeper.state.memory.last_reason


@pytest.mark.parametrize("blind", [None, Seen(held=False, problem="Docker: it does not answer")])
def test_nothing_is_down_because_no_node_can_be_read(
    world: World, keeper: Keeper, monkeypatch: pytest.MonkeyPatch, blind: Seen | None
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(world, "look", lambda: [Seen(problem="Docker: it does not answer"), blind])
        assert after(world, keeper, 30) == "watching"
    assert after(world, keeper, 10) == "serving"
    assert world.calls == []


def test_a_supervisor_that_stood_still_takes_no_engine_for_one_that_hangs(
    world: World, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    after(world, keeper, 70)
    with monkeypatch.context() as patch:  # the engine was asked last before the process was stopped
        patch.setattr(Engine, "silent_s", 3600.0)
        world.now += 3600
        after(world, keeper, 1)
    assert after(world, keeper, 10) == "serving"
    assert world.calls == []


def test_ranks_that_cannot_be_stopped_are_not_joined_by_others(
    world: World, keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node whose Docker refuses to stop its rank reports neither that it runs nor that it does not."""
    after(world, keeper, 70)
    stop = world.stop

    def refuse(ranks: Sequence[int]) -> list[Seen | None]:
        stop([rank for rank in ranks if rank == 0])
        return [Seen(problem="Docker: timeout") if rank == 1 else world.seen[rank] for rank in ranks]

    with monkeypatch.context() as patch:
        patch.setattr(world, "stop", refuse)
        world.end(0)
        assert times_of_starts(world, keeper, 300) == []
    assert after(world, keeper, 70) == "serving"


@pytest.mark.parametrize("asked", ["stop [1]", "start [0]"])
def test_ranks_that_run_although_they_were_stopped_are_not_joined(
    world: World, keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """Something on the node of rank 1 starts it again, without an end."""
    after(world, keeper, 70)

    def and_run(do: Callable[[Sequence[int]], list[Seen | None]], ranks: Sequence[int]) -> list[Seen | None]:
        answers = do(ranks)
        if asked == "stop [1]" or world.calls[-1] == asked:
            world.seen[1] = world._running(1, len(world.calls))
        return answers

    monkeypatch.setattr(world, "stop", functools.partial(and_run, world.stop))
    monkeypatch.setattr(world, "start", functools.partial(and_run, world.start))
    world.end(0)
    after(world, keeper, 300)
    assert keeper.state.status.phase == "down" and "start [1]" not in world.calls
    refused = [event["text"] for event in events(tmp_path) if event["kind"] == "refused"]
    assert 5 < len(refused) < 10 and "rank 1 (10.0.0.2) runs, although it was stopped" in refused[0]
