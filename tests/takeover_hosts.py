"""Hosts of a replica and spares, as tests/takeover_model.py drives them.

What decides is real: Node, Agreement, Standbys, Holds, Keeper, and the records on disk. The network, Docker,
the engines, power and the clock are simulated, as their real counterparts behave.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import docker
from ansible_collections.headfirst.serving.plugins.module_utils.container_spec import (
    GENERATION_LABEL,
    RANK_LABEL,
)
from described_container import described, moment, states
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.plan import standby as plan
from headfirst.node.supervisor import host_state, messages, node, records, takeover
from headfirst.node.supervisor.containers import Containers
from headfirst.node.supervisor.host_state import Holds
from headfirst.node.supervisor.keeper import Keeper
from headfirst.node.supervisor.memory import Memories
from headfirst.node.supervisor.messages import RankRequest, Seen
from headfirst.node.supervisor.node import NodeRanks
from headfirst.node.supervisor.nodes import Nodes, Ranks
from headfirst.node.supervisor.records import GenerationRecord
from headfirst.node.supervisor.takeover import TURN_S, Agreement, Standbys

NAME, INVENTORY = "headfirst-engine", f"{1:012x}"
HANG_S, START_S, LOAD_S = 10.0, 20.0, 3.0
TICK_S = TURN_S / 2  # between two steps of each keeper, which are a second apart on a host
# As planned: an engine that lost a rank was found hanging before.
AFTER_S = HANG_S + 20
PORT = ServiceSettings().engine_port


class PowerLostError(BaseException):
    """The process that ran ended between two instructions."""


class Container:
    """A rank's container. Without a restart policy, as a standby's: power that comes back starts nothing."""

    def __init__(self, host: Host, name: str, generation: str, rank: int) -> None:
        self._host, self.name, self.id, self.rank = host, name, f"id of {generation}", rank
        self.labels = {GENERATION_LABEL: generation, RANK_LABEL: str(rank)}
        self.attrs = described("exited", id=self.id, ExitCode=137)
        self.started_s = 0.0
        self.answered = False  # since its start

    @property
    def runs(self) -> bool:
        return bool(self.attrs["State"]["Running"])

    @property
    def generation(self) -> str:
        return self.labels[GENERATION_LABEL]

    def start(self) -> None:
        self._host.net.acted(self._host, "start", self)
        self.started_s = self._host.net.now
        self.attrs["State"] |= states(True) | {"StartedAt": moment(self.started_s)}
        self.answered = False

    def stop(self, timeout: int) -> None:
        if self.runs:
            self._host.net.acted(self._host, "stop", self)
        self.attrs["State"] |= states(False)

    def rename(self, name: str) -> None:
        self._host.net.acted(self._host, "rename", self)
        self.name = name

    def logs(self, tail: int, timestamps: bool, since: int) -> bytes:
        return b"a line"


class Docker:
    """`Containers._client`: names that are asked for as a regular expression are compared with "/NAME"."""

    def __init__(self) -> None:
        self.every: list[Container] = []
        self.containers: Any = SimpleNamespace(list=self._list, get=self._get)

    def _list(self, all: bool, filters: dict[str, str]) -> list[Container]:
        wanted = filters.get("name", "").removeprefix("^/?").removesuffix("$").replace("\\", "")
        return [one for one in self.every if not wanted or one.name == wanted]

    def _get(self, name: str) -> Container:
        if found := self._list(all=True, filters={"name": name}):
            return found[0]
        raise docker.errors.NotFound(f"no container {name}")


class _Node(NodeRanks):
    """A real one, which tells the network what it is asked."""

    net: Network

    def answer(self, asked: RankRequest, address: str) -> Seen:
        self.net.before(asked)
        return super().answer(asked, address)


class Host:
    """A host at the address `own`, its files below `folder`: what outlives a reboot, and /run."""

    def __init__(self, net: Network, own: str) -> None:
        self.net, self.own, self.folder = net, own, net.folder / own
        self.on, self.booted_at = True, net.now - 1000
        self.held_by_hand = False
        self.docker, self.containers = Docker(), Containers()
        self.containers._client = self.docker  # type: ignore[assignment]
        (self.folder / NAME).mkdir(parents=True)
        self.start_supervisor()

    @property
    def holds(self) -> Holds:
        return Holds(self.folder / "run")

    @property
    def current(self) -> Container | None:
        return next((one for one in self.docker.every if one.name == NAME), None)

    def start_supervisor(self) -> None:
        """As `Daemon`: what it had agreed to, and since when a host is away, was in its memory."""

        def ask(address: str, body: bytes, *, limit_s: float, longest: int) -> bytes:
            return self.net.ask(self, self.net.hosts[address], body)

        client: Any = SimpleNamespace(ask=ask)
        self.answers, self.keeper = True, None
        self.node = _Node(self.containers, self.holds, Agreement(self.own, client, self.containers))
        self.node.net = self.net
        self.nodes = Nodes(self.own, self.node.answer, client)
        self.standbys = Standbys(self.nodes, self.net)  # type: ignore[arg-type]
        self.keeper: Keeper | None

    def power_off(self) -> None:
        self.on = self.held_by_hand = False
        for one in self.docker.every:
            one.attrs["State"] |= states(False)
        shutil.rmtree(self.folder / "run", ignore_errors=True)  # it is in memory

    def power_on(self) -> None:
        if not self.on:
            self.on, self.booted_at = True, self.net.now
            self.start_supervisor()

    def turn(self) -> None:
        """What `Daemon` does in a tick; its threads are taken one after the other."""
        if not (self.on and self.answers):
            return
        with self.net.at(self), contextlib.suppress(PowerLostError):
            with self.net.explained(self):
                self._keep()
            if self.net.now % TURN_S == 0:
                with self.net.explained(self):
                    self.standbys.turn()

    def _keep(self) -> None:
        """As Daemon._look_for_replicas."""
        rank = self.containers.rank(NAME)
        record = records.read(NAME, rank.generation) if rank else None
        kept = record if record and rank and rank.rank == 0 and record.ranks[0] == self.own else None
        if (self.keeper.record if self.keeper else None) != kept:
            self.keeper = self._keeper(kept) if kept else None
        if self.keeper:
            self.keeper.step()

    def _keeper(self, record: GenerationRecord) -> Keeper:
        ranks = Ranks(record, self.nodes)
        ranks._pool = SimpleNamespace(map=map)  # type: ignore[assignment]
        memories, net = Memories(self.folder, self.folder / "run"), self.net
        return Keeper(record, ranks, lambda record: Engine(net, record), net, memories)  # type: ignore[arg-type]


class Engine:
    """`Health` of one start: it asks each second."""

    def __init__(self, net: Network, record: GenerationRecord) -> None:
        self._net, self._record, self._serves, self._alive_at = net, record, False, net.now

    def _check(self) -> None:
        if self._net.computes(self._record.generation):
            self._serves, self._alive_at = True, self._net.now

    @property
    def serves(self) -> bool:
        self._check()
        return self._serves

    @property
    def silent_s(self) -> float:
        self._check()
        return self._net.now - self._alive_at

    def close(self) -> None:
        """Nothing is open."""


class Network:
    """All hosts, and what was done that must never be done, as `wrong`."""

    def __init__(self, folder: Path, replica: Sequence[str], spares: Sequence[str]) -> None:
        self.folder, self.replica, self.now = folder, tuple(replica), 10_000.0
        self.groups: dict[str, int] = {}  # hosts of different groups do not reach each other
        self.here: Any = None  # the host whose process runs
        self.events: list[tuple[float, str, str, str]] = []
        self.acts: list[tuple[float, str, str, str]] = []
        self.wrong: list[str] = []
        self.turning: Any = None
        self.interrupt_after, self.interrupt = 0, lambda: None
        self.controller = False  # a run of `up` acts
        self.hosts = {own: Host(self, own) for own in (*replica, *spares)}
        self.generations = {INVENTORY: self.replica}
        self.waiting: dict[str, dict[str, Any]] = {}
        for spare in _spares(replica, spares):
            for replaces in range(len(replica)):
                self._plan(spare, replaces)

    def _plan(self, spare: str, replaces: int) -> None:
        """As role_vars/engine.py."""
        generation = f"standby-{len(self.generations):012x}"
        ranks = [spare if rank == replaces else own for rank, own in enumerate(self.replica)]
        waits = {"spare": spare, "replaces": replaces, "instead_of": self.replica, "after_seconds": AFTER_S}
        waits["instead_of_url"] = _url(self.replica)
        self.generations[generation] = tuple(ranks)
        self.waiting[generation] = engine_record(ranks, standby=waits)

    @contextlib.contextmanager
    def simulated(self) -> Iterator[None]:
        """Code of the supervisor that runs has the clock and the files of `here`."""
        with contextlib.ExitStack() as stack:
            for function in (records.read, records.standby, records.standbys, records.activate):
                own = function.__code__.co_argcount - 1  # arguments before the folder
                stack.enter_context(
                    mock.patch.object(
                        records,
                        function.__name__,
                        lambda *given, own=own, function=function: function(*given[:own], self.here.folder),
                    )
                )
            uptime = lambda: self.now - self.here.booted_at  # noqa: E731
            stack.enter_context(mock.patch.object(host_state, "uptime", uptime))
            stack.enter_context(mock.patch.object(takeover, "_answers", self._accepts))
            stack.enter_context(mock.patch.object(node, "weights_come", lambda: False))
            stack.enter_context(mock.patch.object(os, "fsync", lambda _: None))
            yield

    @contextlib.contextmanager
    def at(self, host: Host) -> Iterator[None]:
        before, self.here = self.here, host
        try:
            yield
        finally:
            self.here = before

    def ask(self, own: Host, other: Host, body: bytes) -> bytes:
        """A request over the network: PeerClient and Listener."""
        if not (self.reach(own.own, other.own) and other.answers):
            raise ConnectionRefusedError
        with self.at(other):
            answer = messages.encode(other.node.answer(messages.request(body, where=own.own), own.own))
        if self.here is self.turning and not (own.on and own.answers):
            raise PowerLostError
        if not self.reach(own.own, other.own):  # since the request
            raise ConnectionResetError
        return answer

    def before(self, asked: RankRequest) -> None:
        """What interrupts a takeover happens before one of its requests is carried out."""
        if asked.do in ("prepare", "activate") and self.interrupt_after:
            self.interrupt_after -= 1
            if not self.interrupt_after:
                self.interrupt()
        if not (self.here.on and self.here.answers):
            raise PowerLostError if self.here is self.turning else ConnectionResetError

    def reach(self, one: str, other: str) -> bool:
        ends = self.hosts[one], self.hosts[other]
        return all(end.on for end in ends) and self.groups.get(one, 0) == self.groups.get(other, 0)

    # -- engines --------------------------------------------------------------------------------------

    def ranks(self, generation: str) -> list[Container]:
        """The containers of its ranks that run."""
        hosts = [self.hosts[own] for own in self.generations[generation]]
        return [
            one for host in hosts for one in host.docker.every if one.runs and one.generation == generation
        ]

    def is_complete(self, generation: str) -> bool:
        own = self.hosts[self.generations[generation][0]].docker.every
        head = any(one.runs and one.generation == generation for one in own)
        return head and len(self.ranks(generation)) == len(self.replica)

    def computes(self, generation: str) -> bool:
        """Whether all its ranks run, have loaded, and reach one another: connections outlive a short cut."""
        own = self.generations[generation]
        if not (self.is_complete(generation) and all(self.reach(own[0], other) for other in own)):
            return False
        return all(self.now - one.started_s >= LOAD_S for one in self.ranks(generation))

    def serving(self) -> list[str]:
        return [generation for generation in self.generations if self.computes(generation)]

    def _accepts(self, url: str) -> bool:
        """Whether an engine has opened its port: when it has loaded, until it ends, hanging or not."""
        own = url.removeprefix("http://").removesuffix(f":{PORT}")
        heads = [one for one in self.hosts[own].docker.every if one.rank == 0 and one.runs and one.answered]
        return bool(heads) and self.reach(self.here.own, own)

    # -- what is done ---------------------------------------------------------------------------------

    def acted(self, host: Host, what: str, container: Container) -> None:
        self.acts.append((self.now, host.own, what, container.generation))
        if host.held_by_hand:
            self.wrong.append(f"a {what} on {host.own}, which a person holds")
        if what == "stop" and not self.controller and self.computes(container.generation):
            self.wrong.append(f"{host.own} stopped {container.generation}, which serves")

    def add(self, name: str, kind: str, text: str, **more: object) -> None:
        """`Events` of the host that runs."""
        self.events.append((self.now, self.here.own, kind, text))

    @contextlib.contextmanager
    def explained(self, host: Host) -> Iterator[None]:
        """Whatever a turn starts, stops or activates has an event of that turn."""
        self.turning = host
        acts, events = len(self.acts), len(self.events)
        yield
        if len(self.acts) > acts and len(self.events) == events:
            self.wrong.append(f"{host.own} did this without an event: {self.acts[acts:]}")

    def tick(self) -> None:
        """Time passes."""
        self.now += TICK_S
        for generation in self.serving():
            for one in self.ranks(generation):
                one.answered = True
        for host in self.hosts.values():
            host.turn()
        complete = [generation for generation in self.generations if self.is_complete(generation)]
        if len(complete) > 1:
            self.wrong.append(f"two gangs run: {complete}")


def _url(ranks: Sequence[str]) -> str:
    return f"http://{ranks[0]}:{PORT}"


def engine_record(ranks: Sequence[str], **more: object) -> dict[str, Any]:
    readiness = {"path": "/health", "probe_path": "/v1/completions", "probe_body": {}, "answer": []}
    supervision = {"ranks": list(ranks), "hang_seconds": HANG_S, "start_seconds": START_S, **more}
    own = {"url": _url(ranks), "model": "demo", "api_key": "", "readiness": readiness, "files": {}}
    return {**own, "supervision": supervision}


def _spares(replica: Sequence[str], spares: Sequence[str]) -> Sequence[str]:
    """Those that the plan gives the replica."""
    cluster: Any = SimpleNamespace(spares=spares)
    planned: Any = SimpleNamespace(places=replica, index=0)
    return plan._spares(cluster, planned)  # type: ignore[return-value]
