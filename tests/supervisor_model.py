"""Random histories of a replica and its supervisor, checked after each step against what must never happen.

The keeper and its decisions are the real ones. Nodes, containers, the engine, the disk and the clock are
simulated, as their real counterparts behave: a request to a silent node is lost, or carried out without an
answer; Docker refuses; a container ends while it loads, or as soon as it is started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import histories
from headfirst.node.supervisor import host_state
from headfirst.node.supervisor.keeper import Keeper
from headfirst.node.supervisor.memory import MOST_FAILED_STARTS, GenerationMemory
from headfirst.node.supervisor.messages import Seen
from headfirst.node.supervisor.records import GenerationRecord
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

HANG_S, START_S, LOAD_S = 30.0, 40.0, 5.0
GENERATION, OTHER_GENERATION = "g1", "g2"
BY_HAND = 1_000_000
"""Numbers of gangs from here on were not started by the supervisor."""


@dataclass
class Node:
    """The host of one rank. A gang is the ranks that were started together; 0: the rank does not run."""

    gang: int = 0
    start: str = ""
    ended: str = "it ended with exit code 0"
    generation: str = GENERATION
    reachable: bool = True
    answers_are_lost: bool = False  # requests are carried out all the same
    docker: bool = True
    held: bool = False
    refuses: str = ""
    exits: bool = False

    def seen(self) -> Seen:
        if not self.docker:
            return Seen(held=self.held, problem="Docker: it does not answer")
        return Seen(self.generation, self.gang > 0, self.start, "" if self.gang else self.ended, self.held)

    def end(self, why: str) -> None:
        if self.gang:
            self.gang, self.ended = 0, why


@dataclass
class World:
    """All that is outside of the supervisor, and what was done, as `trace`: events, stops and starts."""

    nodes: list[Node]
    now: float = 10_000.0
    hangs: bool = False
    dies: bool = False  # the last rank ends while it loads
    disk_is_full: bool = False
    gang_began: float = 0.0
    gangs: int = 0
    starts: int = 0
    resume: bool = False
    restarted: bool = False  # a rank ended and was started by hand before the supervisor noticed its end
    disk: GenerationMemory | None = None
    trace: list[tuple[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What was done that must never be done."""

    @property
    def computes(self) -> bool:
        """Whether the engine answers now: all ranks of one gang run, and have loaded."""
        gangs = {node.gang for node in self.nodes}
        loaded = self.now - self.gang_began >= LOAD_S
        return len(gangs) == 1 and 0 not in gangs and loaded and not self.hangs

    def run(self, rank: int, gang: int) -> None:
        """Start a rank's container."""
        node = self.nodes[rank]
        self.starts += 1
        node.gang, node.start, self.gang_began = gang, f"{rank}@{self.starts}", self.now

    # -- the ranks, as the keeper reaches them: `Ranks` of nodes.py --------------------------------

    def look(self) -> list[Seen | None]:
        return [self._answer(rank) for rank in range(len(self.nodes))]

    def _answer(self, rank: int) -> Seen | None:
        node = self.nodes[rank]
        return node.seen() if node.reachable and not node.answers_are_lost else None

    def stop(self, ranks: Sequence[int]) -> list[Seen | None]:
        if self.computes and not self.restarted:
            self.wrong.append("a replica that serves was stopped")
        self._act("stop", ranks)
        return [self._carry_out(rank, self._stop) for rank in ranks]

    def start(self, ranks: Sequence[int]) -> list[Seen | None]:
        if 0 in ranks:
            self.gangs += 1
            if any(node.gang for node in self.nodes):
                self.wrong.append("a gang was started beside ranks that run")
        elif self.nodes[0].gang != self.gangs or any(node.gang for node in self.nodes[1:]):
            self.wrong.append("ranks were started that do not belong to rank 0")
        self._act("start", ranks)
        return [self._carry_out(rank, self._start) for rank in ranks]

    def logs(self) -> list[list[str]]:
        return [["a line"] if answer else [] for answer in self.look()]

    def close(self) -> None:
        """Nothing is open."""

    def _act(self, do: str, ranks: Sequence[int]) -> None:
        if any(node.held and node.reachable and not node.answers_are_lost for node in self.nodes):
            self.wrong.append(f"a {do} while somebody works on the replica")
        if any(seen and not seen.problem and seen.generation != GENERATION for seen in self.look()):
            self.wrong.append(f"a {do} while a node has another generation")
        self.trace.append((do, tuple(ranks)))

    def _carry_out(self, rank: int, do: Callable[[int], Seen]) -> Seen | None:
        node = self.nodes[rank]
        if not node.reachable:
            return None
        answer = do(rank) if node.docker else node.seen()
        return None if node.answers_are_lost else answer

    def _stop(self, rank: int) -> Seen:
        self.nodes[rank].end("it ended with exit code 143")
        return self.nodes[rank].seen()

    def _start(self, rank: int) -> Seen:
        node = self.nodes[rank]
        if node.refuses:
            node.ended = f"it did not start: {node.refuses}"
            return replace(node.seen(), problem=f"Docker: {node.refuses}")
        if not node.gang:
            self.run(rank, self.gangs)
            if node.exits:
                node.end("it ended with exit code 2")
        return node.seen()

    # -- the disk and the journal: `Memories` and `Events` ------------------------------------------

    def load(self, name: str, generation: str) -> GenerationMemory:
        return self.disk or GenerationMemory(generation)

    def save(self, name: str, memory: GenerationMemory) -> bool:
        if not self.disk_is_full:
            self.disk = memory
        return not self.disk_is_full

    def was_asked(self, name: str) -> bool:
        asked, self.resume = self.resume, False
        return asked

    def add(self, name: str, kind: str, text: str, **more: object) -> None:
        self.trace.append(("event", kind))


class Engine:
    """`Health` of one start."""

    def __init__(self, world: World) -> None:
        self._world, self.serves, self._alive_at = world, False, world.now

    @property
    def silent_s(self) -> float:
        return self._world.now - self._alive_at

    def check(self) -> None:
        if self._world.computes:
            self.serves, self._alive_at = True, self._world.now

    def close(self) -> None:
        """Nothing is open."""


def record(ranks: int) -> GenerationRecord:
    return GenerationRecord(
        name="headfirst-engine",
        generation=GENERATION,
        ranks=tuple(f"10.0.0.{rank + 1}" for rank in range(ranks)),
        url="http://10.0.0.1:20000",
        model="demo",
        api_key="",
        readiness={},
        path_generates=False,
        metrics=None,
        routers=(),
        hang_s=HANG_S,
        start_s=START_S,
    )


# What an act must follow in the trace, so that its reason can be read afterwards.
_REASONS = {"stop": {"ended", "gave_up", "refused", "stopping"}, "start": {"starting"}}


# Starts in a minute, where some fail and some are refused: pauses of 0, 0, 5, 5, 5, 15 and 15 seconds.
_MOST_A_MINUTE = 8

_FAULTS = (
    "the rank is killed",
    "the rank ends",
    "the engine hangs",
    "ranks end while they load",
    "the rank ends as soon as it is started",
    "Docker refuses to start it",
    "Docker does not answer",
    "the node is silent",
    "the node's answers are lost",
    "the node restarts",
    "the supervisor restarts",
    "the disk is full",
    "a person holds it",
    "a spare takes over",
    "a person starts the rank",
    "a person starts all ranks",
    "a person asks to try again",
    "a controller changes the replica",
    "the machine sleeps",
)


_TOGETHER = (
    ("ranks end while they load", "the disk is full", "the rank ends"),
    ("ranks end while they load", "a person holds it", "the node is silent", "the rank ends"),
    ("ranks end while they load", "a person asks to try again", "the rank ends"),
    ("Docker refuses to start it", "the rank ends", "the node's answers are lost"),
    ("a spare takes over", "the rank ends", "the node is silent"),
)


class SupervisorModel(RuleBasedStateMachine):
    """Two or three ranks, and whatever may happen to them."""

    steps_run, seconds_run = 0, 0
    """Steps of histories, and of the keeper in them, in this process."""

    @initialize(
        ranks=st.integers(1, 3),
        serves=st.booleans(),
        silent=st.booleans(),
        faults=st.one_of(
            st.sampled_from(_TOGETHER),
            st.lists(st.sampled_from(_FAULTS), min_size=1, max_size=5, unique=True),
        ),
    )
    def begin(self, ranks: int, serves: bool, silent: bool, faults: Sequence[str]) -> None:
        """A supervisor starts beside ranks that serve, or that have ended; perhaps one node is silent.

        A history has few kinds of faults, so that these meet each other.
        """
        self.faults = faults
        self.world = World([Node() for _ in range(ranks)])
        self.engines: list[Engine] = []
        self.attempts: list[float] = []  # when whole gangs were started that have not served
        self.tries: list[float] = []  # when rank 0 was started, in the last minute
        self.dead_since: float | None = None
        self._clock = mock.patch.object(host_state, "uptime", lambda: self.world.now)
        self._clock.start()
        if serves:
            self._start_by_hand()
            self.world.now += 100
        self.world.nodes[-1].reachable = not silent or ranks == 1
        self.keeper = self._new_keeper()
        self._step()

    def teardown(self) -> None:
        if hasattr(self, "_clock"):
            self._clock.stop()

    def _new_keeper(self) -> Keeper:
        def engine(_: GenerationRecord) -> Engine:
            self.engines.append(Engine(self.world))
            return self.engines[-1]

        world: Any = self.world
        self.serves_since_start = world.computes and not world.load("", GENERATION).gave_up
        return Keeper(record(len(self.world.nodes)), world, engine, world, world)

    def _start_by_hand(self) -> None:
        gang = BY_HAND + self.world.starts
        for rank in range(len(self.world.nodes)):
            self.world.run(rank, gang)

    # -- time ---------------------------------------------------------------------------------------

    def _step(self, seconds: float = 1.0) -> None:
        """One step of the keeper, and what is checked of what it did."""
        world = self.world
        world.now += seconds
        if world.dies and self.keeper.state.status.phase == "starting":
            world.nodes[-1].end("it ended with exit code 1")
        if seconds <= 1.0:  # else this process did not run, and asked nothing
            for engine in self.engines[-1:]:
                engine.check()
        begun = len(world.trace)
        self.keeper.step()
        type(self).seconds_run += 1
        added = world.trace[begun:]
        watched = self.keeper.state.status.phase in ("starting", "serving")
        world.restarted = world.restarted and watched and not any(kind == "stop" for kind, _ in added)
        self._check_events(added)
        self._check_pauses(added)
        self.serves_since_start = self.serves_since_start and world.computes
        assert not self.serves_since_start or self.keeper.state.serves is not False, "requests go elsewhere"

    def _check_events(self, added: Sequence[tuple[str, Any]]) -> None:
        """Every stop and every start follows the event that has its reason."""
        reason = ""
        for kind, what in added:
            if kind == "event":
                reason = what
            elif kind == "stop" or 0 in what:
                assert reason in _REASONS[kind], f"a {kind} without its event: {added}"
                reason = ""

    def _check_pauses(self, added: Sequence[tuple[str, Any]]) -> None:
        """Six whole starts without service in between, with pauses; what is refused has pauses, too."""
        memory, now = self.keeper.state.memory, self.world.now
        starts = [now for kind, what in added if kind == "start" and 0 in what]
        self.tries = [at for at in self.tries if now - at < 60] + starts
        assert len(self.tries) <= _MOST_A_MINUTE, "no pause between starts"
        if ("event", "refused") not in added:
            self.attempts += starts
        if self.keeper.state.status.phase in ("serving", "held"):
            self._expect(memory.failed_starts)
        if memory.early_ends == memory.refused_starts == 0:
            self.tries = []
        assert len(self.attempts) <= MOST_FAILED_STARTS, "a further start after six that failed"
        if starts and len(self.attempts) == MOST_FAILED_STARTS:
            assert self.attempts[-1] - self.attempts[0] > 60, "no pause between starts that failed"

    def _expect(self, failed: int) -> None:
        """So many starts have failed before; when is not known."""
        self.attempts = [-1e9] * failed

    def _intervened(self) -> None:
        """Somebody did what counts as a new beginning."""
        self._expect(0)
        self.tries = []
        self.dead_since = None

    @rule(seconds=st.sampled_from([1, 5, 20, 65, 130]))
    def time_passes(self, seconds: int) -> None:
        for _ in range(seconds):
            self._step()

    # -- what happens, and what people and controllers do ---------------------------------------------

    @rule(number=st.integers(0, 2), fault=st.integers(0, 4))
    def something_happens(self, fault: int, number: int) -> None:
        rank, what = number % len(self.world.nodes), self.faults[fault % len(self.faults)]
        world, node = self.world, self.world.nodes[rank]
        if what.startswith("a person starts"):
            world.restarted = self.keeper.state.status.phase in ("starting", "serving") and not node.gang
        match what:
            case "the rank is killed":
                node.end("it was killed: out of memory")
            case "the rank ends":
                node.end("it ended with exit code 1")
            case "the engine hangs":
                world.hangs = True
            case "ranks end while they load":
                world.dies = True
            case "the rank ends as soon as it is started":
                node.exits = True
            case "Docker refuses to start it":
                node.refuses = "no space left on device"
            case "Docker does not answer":
                node.docker = False
            case "the node is silent":
                node.reachable = rank == 0  # the node of rank 0 is the supervisor's own
            case "the node's answers are lost":
                node.answers_are_lost = rank > 0
            case "the node restarts":
                node.end("it ended with exit code 255")
                if rank == 0:
                    self._restart_supervisor()
            case "the supervisor restarts":
                self._restart_supervisor()
            case "the disk is full":
                world.disk_is_full = True
            case "a person holds it":
                node.held = True
            case "a spare takes over":
                node.end("it ended with exit code 143")
                node.generation = OTHER_GENERATION
            case "a person starts the rank":
                if not node.gang:
                    world.run(rank, BY_HAND + world.starts)
                if all(node.gang for node in world.nodes):
                    self._intervened()
            case "a person starts all ranks":
                if not any(node.gang for node in world.nodes):
                    self._start_by_hand()
                    self._intervened()
            case "a person asks to try again":
                world.resume = True
                self._intervened()
                self._step()
            case "a controller changes the replica":
                self._change_replica()
            case "the machine sleeps":  # the time since boot goes on
                self.dead_since = None
                self._step(3600.0)
            case _:
                raise ValueError(what)

    def _restart_supervisor(self) -> None:
        self.keeper.close()
        self.keeper = self._new_keeper()
        self._expect(self.keeper.state.memory.failed_starts)
        self.tries = []
        self.dead_since = None

    def _change_replica(self) -> None:
        """As `deploy up`: it holds, stops, starts all ranks, and releases; a person's holds stay."""
        held = [node.held for node in self.world.nodes]
        for node in self.world.nodes:
            node.held = True
        self._step()
        for node in self.world.nodes:
            node.end("it ended with exit code 143")
        self._step()
        self._start_by_hand()
        self._step()
        for node, before in zip(self.world.nodes, held, strict=True):
            node.held = before
        self._intervened()

    @rule(how=st.sampled_from(["nodes", "nodes", "nodes", "causes", "all"]))
    def it_is_well_again(self, how: str) -> None:
        """The nodes answer, or what made ranks fail is corrected. With both, the replica serves."""
        if how in ("nodes", "all"):
            for node in self.world.nodes:
                node.reachable, node.answers_are_lost, node.docker, node.held = True, False, True, False
                node.generation = GENERATION
        if how in ("causes", "all"):
            self.world.hangs = self.world.dies = self.world.disk_is_full = False
            for node in self.world.nodes:
                node.exits, node.refuses = False, ""
        if how == "all":
            self._intervened()
            self._serves_soon()

    def _serves_soon(self) -> None:
        for _ in range(int(max(START_S, HANG_S)) + 100):  # a hang is noticed, then a pause and a load
            self.world.resume = (
                self.keeper.state.status.phase == "gave_up"
            )  # the last start before failed, too
            self._step()
            if self.world.computes and self.keeper.state.status.phase == "serving":
                break
        assert self.keeper.state.status.phase == "serving" and self.world.computes, self.keeper.state.status
        assert self.world.load("", GENERATION) == self.keeper.state.memory, "the memory was not saved"

    # -- what must never be -------------------------------------------------------------------------

    @invariant()
    def nothing_wrong_was_done(self) -> None:
        type(self).steps_run += 1
        if hasattr(self, "world"):
            assert not self.world.wrong, self.world.wrong

    @invariant()
    def one_gang_at_most(self) -> None:
        if hasattr(self, "world"):
            gangs: Mapping[int, int] = {node.gang: 1 for node in self.world.nodes if 0 < node.gang < BY_HAND}
            assert len(gangs) <= 1, "two gangs run"

    @invariant()
    def what_does_not_serve_is_noticed(self) -> None:
        if not hasattr(self, "world"):
            return
        if self.world.computes or self.keeper.state.status.phase != "serving":
            self.dead_since = None
        elif self.dead_since is None:
            self.dead_since = self.world.now
        assert self.dead_since is None or self.world.now - self.dead_since < HANG_S + 10, "it does not serve"


def run_histories(count: int, numbers: Iterable[int]) -> int:
    """Run `count` histories for each number, as `histories.run` does; how many steps they had."""
    before = SupervisorModel.steps_run
    histories.run(SupervisorModel, count, numbers, steps=50)
    return SupervisorModel.steps_run - before
