"""The decisions of the supervisor of rank 0, on simulated ranks, engine and time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from headfirst.supervisor import clock, memory
from headfirst.supervisor.events import Events
from headfirst.supervisor.keeper import Keeper
from headfirst.supervisor.memory import MOST_FAILED_STARTS, Memories
from headfirst.supervisor.messages import Seen
from headfirst.supervisor.records import Record

HANG_S, START_S = 60.0, 300.0
RECORD = Record(
    name="headfirst-engine",
    generation="g1",
    ranks=("10.0.0.1", "10.0.0.2"),
    url="http://10.0.0.1:30000",
    model="demo",
    api_key="sk",
    readiness={},
    path_generates=False,
    metrics=None,
    routers=(),
    hang_s=HANG_S,
    start_s=START_S,
)


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
        self.refuses = ""  # why rank 1 cannot be started
        self.calls: list[str] = []
        self.addresses = RECORD.ranks

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
        self.starts += 1
        for rank in ranks:
            if rank == 1 and self.refuses:
                self.seen[rank] = Seen(generation="g1", problem=self.refuses)
            else:
                self.seen[rank] = self._running(rank, self.starts)
        return [self.look()[rank] for rank in ranks]

    def log(self, rank: int) -> list[str]:
        return [f"the last line of rank {rank}"]

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
    monkeypatch.setattr(clock, "uptime", lambda: world.now)
    return world


@pytest.fixture
def keeper(world: World, tmp_path: Path) -> Keeper:
    return new_keeper(world, tmp_path)


def new_keeper(world: World, folder: Path) -> Keeper:
    events = Events(folder / "events.jsonl")
    return Keeper(RECORD, world, lambda record: Engine(world), events, Memories(folder))


def after(world: World, keeper: Keeper, seconds: int) -> str:
    """The phase after so many steps, one a second."""
    for _ in range(seconds):
        world.now += 1
        if world.dies and keeper.status.phase == "starting":
            world.end(1)
        keeper.step()
    return keeper.status.phase


def test_it_adopts_ranks_that_serve_already(world: World, keeper: Keeper) -> None:
    assert after(world, keeper, 10) == "serving"
    assert world.calls == [] and keeper.memory.restarts == 0


@pytest.mark.parametrize("rank", [0, 1])
def test_one_rank_that_ends_restarts_all_the_head_first(world: World, keeper: Keeper, rank: int) -> None:
    after(world, keeper, 10)
    world.end(rank)
    assert after(world, keeper, 10) == "serving"
    assert world.calls[-2:] == ["start [0]", "start [1]"] and "stop [0, 1]" in world.calls[0]
    assert keeper.memory.restarts == 1
    assert keeper.memory.last_reason == f"rank {rank} ({RECORD.ranks[rank]}): it ended with exit code 1"


def test_the_rank_that_was_killed_is_the_cause(world: World, keeper: Keeper) -> None:
    after(world, keeper, 10)
    world.end(0)
    world.end(1, "it was killed: out of memory")
    after(world, keeper, 1)
    assert keeper.memory.last_reason == "rank 1 (10.0.0.2): it was killed: out of memory"


def test_a_rank_that_was_started_alone_restarts_all(world: World, keeper: Keeper) -> None:
    after(world, keeper, 10)
    world.seen[1] = world._running(1, 77)
    after(world, keeper, 2)
    assert "it was started without the others" in keeper.memory.last_reason


def test_an_engine_that_hangs_is_started_again(world: World, keeper: Keeper) -> None:
    after(world, keeper, 10)
    world.hangs = True
    assert after(world, keeper, int(HANG_S)) == "serving"
    after(world, keeper, 2)
    assert "the engine hangs" in keeper.memory.last_reason
    world.hangs = False
    assert after(world, keeper, 10) == "serving"


def test_a_node_that_is_silent_ends_nothing_while_the_engine_computes(world: World, keeper: Keeper) -> None:
    after(world, keeper, 10)
    world.away = {1}
    assert after(world, keeper, 600) == "serving"
    assert world.calls == [] and "10.0.0.2" in keeper.status.text


def test_nothing_starts_before_every_node_answers(world: World, keeper: Keeper) -> None:
    after(world, keeper, 10)
    world.away = {1}
    world.end(0)
    assert after(world, keeper, 120) == "down"
    assert not [call for call in world.calls if call.startswith("start")]
    assert keeper.status.text == "waiting for rank 1 (10.0.0.2)"
    world.away = set()
    assert after(world, keeper, 10) == "serving"


def test_failed_starts_have_growing_pauses_and_an_end(world: World, keeper: Keeper) -> None:
    after(world, keeper, 10)
    world.dies = True
    world.end(1)
    started = []
    for _ in range(600):
        before = world.starts
        after(world, keeper, 1)
        if world.starts > before:
            started.append(world.now)
    assert keeper.status.phase == "gave_up"
    assert len(started) == MOST_FAILED_STARTS
    pauses = [later - earlier for earlier, later in itertools.pairwise(started)]
    assert pauses == sorted(pauses) and pauses[-1] > 30
    assert "10.0.0.2" in keeper.status.text
    assert f"{MOST_FAILED_STARTS} starts in a row failed" in keeper.status.text


def test_it_remembers_that_it_gave_up_until_it_is_asked_to_go_on(
    world: World, keeper: Keeper, tmp_path: Path
) -> None:
    test_failed_starts_have_growing_pauses_and_an_end(world, keeper)
    again = new_keeper(world, tmp_path)
    assert after(world, again, 60) == "gave_up"
    world.dies = False
    assert Memories(tmp_path).forget(RECORD.name)
    assert after(world, again, 20) == "serving"


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
    assert (keeper.memory.early_ends, keeper.memory.failed_starts) == (3 * MOST_FAILED_STARTS, 0)
    after(world, keeper, 61)
    assert keeper.memory.early_ends == 0


def test_a_container_that_cannot_be_started_is_tried_again_without_an_end(
    world: World, keeper: Keeper
) -> None:
    after(world, keeper, 70)
    world.refuses = "no space left on device"
    world.end(1)
    assert after(world, keeper, 900) == "down"
    assert "no space left" in keeper.status.text
    world.refuses = ""
    world.end(1)
    assert after(world, keeper, 30) == "serving"


def test_a_start_that_takes_too_long_has_failed(world: World, keeper: Keeper) -> None:
    after(world, keeper, 70)
    world.load_s = START_S + 100
    world.end(0)
    after(world, keeper, int(START_S) + 10)
    assert keeper.memory.last_reason == f"it did not serve within {START_S:.0f} s"
    assert keeper.memory.failed_starts == keeper.memory.early_ends == 1


def test_a_held_replica_is_left_alone(world: World, keeper: Keeper) -> None:
    after(world, keeper, 10)
    world.seen[1] = Seen(generation="g1", held=True, ended="it ended with exit code 0")
    assert after(world, keeper, 60) == "held"
    assert world.calls == []
    world.end(1)
    assert after(world, keeper, 20) == "serving"


def test_ranks_of_another_generation_are_left_alone(world: World, keeper: Keeper) -> None:
    world.seen[1] = Seen(generation="g2", running=True, start="other")
    assert after(world, keeper, 60) == "held"
    assert keeper.status.text == "rank 1 (10.0.0.2) has another version of it"
    assert world.calls == []


def test_the_boot_of_a_node_counts_no_failure(world: World, tmp_path: Path) -> None:
    world.end(0)
    world.end(1)
    world.away = {1}
    keeper = new_keeper(world, tmp_path)
    assert after(world, keeper, 60) == "down"
    world.away = set()
    assert after(world, keeper, 10) == "serving"
    assert keeper.memory.failed_starts == keeper.memory.early_ends == 0


def test_a_full_disk_ends_nothing(world: World, keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    after(world, keeper, 70)
    monkeypatch.setattr(memory, "replace_file", full)
    monkeypatch.setattr(Path, "open", full)
    world.end(1)
    assert after(world, keeper, 20) == "serving"
