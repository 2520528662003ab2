"""The service `headfirst-supervisor`: answers other nodes, and keeps the replicas whose rank 0 is here."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

import headfirst
from headfirst.node.peers.client import PeerClient
from headfirst.node.supervisor import host_state, records, registration, takeover
from headfirst.node.supervisor.containers import Containers, EngineDown, Rank
from headfirst.node.supervisor.events import Events
from headfirst.node.supervisor.health import Health
from headfirst.node.supervisor.host_state import RUN, Holds
from headfirst.node.supervisor.keeper import Keeper
from headfirst.node.supervisor.memory import Memories
from headfirst.node.supervisor.node import NodeRanks, SupervisorListener
from headfirst.node.supervisor.nodes import Nodes, Ranks, has_left
from headfirst.node.supervisor.records import GenerationRecord
from headfirst.node.supervisor.registration import Registration
from headfirst.node.supervisor.takeover import Agreement, Standbys
from headfirst.node.weights.files import write_whole

T = TypeVar("T")
_STEP_S = 1.0
# A keeper is stuck after so long: stopping and starting all ranks takes less.
_STUCK_S = 300.0
_MEMBERSHIP_S = 10.0
# A rank of a host that has left, and that could not be stopped.
_STOP_AGAIN_S = 10.0
STATE = RUN / "supervisor.json"


@dataclass(frozen=True)
class Settings:
    """/etc/headfirst/supervisor.json: this host's address among the members, and what they share."""

    address: str
    port: int
    members: list[str]  # addresses of all hosts of the cluster
    token: str = field(repr=False)
    keys: dict[str, str] = field(repr=False)  # by the address of each other member
    sha1: str = field(default="", repr=False)  # of the file: the role compares it with what it wrote

    @classmethod
    def read(cls, path: Path) -> Settings:
        """The settings in a file that the role `supervisor` writes."""
        text = path.read_bytes()
        return cls(**json.loads(text), sha1=hashlib.sha1(text, usedforsecurity=False).hexdigest())


class Daemon:
    """All that runs on this node."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._containers, self._holds = Containers(), Holds()
        self._client = PeerClient(settings.address, settings.port, settings.token, settings.keys)
        agreement = Agreement(settings.address, self._client, self._containers)
        self._node = NodeRanks(self._containers, self._holds, agreement)
        self._events, self._memories = Events(), Memories()
        self._kept: dict[str, _SupervisedReplica] = {}
        self._nodes = Nodes(settings.address, self._node.answer, self._client)
        self._standbys = Standbys(self._nodes, self._events)
        self._ended = threading.Event()
        self._has_left = False
        self._stopped_at: dict[str, float] = {}  # ranks of a host that has left
        self._turns = defaultdict[str, _Turns](lambda: _Turns(self._events))

    def run(self) -> None:
        """Keep the replicas until SIGTERM. Raises OSError where the port cannot be had."""
        signal.signal(signal.SIGTERM, lambda _number, _frame: self._ended.set())
        place = (self._settings.address, self._settings.port)
        listener = SupervisorListener(place, self._settings.keys, self._settings.token, self._node)
        threading.Thread(target=listener.serve_forever, args=(0.2,), daemon=True).start()
        self._write_state()  # who starts the service finds its own settings there
        _notify("READY=1")
        threading.Thread(target=self._watch_membership, daemon=True).start()
        threading.Thread(target=self._watch_standbys, daemon=True).start()
        while not self._ended.wait(_STEP_S):
            self.turn()
            if all(replica.is_alive for replica in self._kept.values()):
                _notify("WATCHDOG=1")
        for replica in self._kept.values():
            replica.end()
        listener.shutdown()
        listener.server_close()

    def turn(self) -> None:
        """One turn of the main loop: keep what is here, and write the state."""
        self._turns["replicas"].run("supervisor", "the replicas of this host", self._look_for_replicas)
        self._turns["state"].run("supervisor", str(STATE), self._write_state)

    def _look_for_replicas(self) -> None:
        """A keeper for each replica whose rank 0 is here, of the generation that has its name."""
        try:
            ranks = self._containers.ranks()
        except EngineDown:
            return  # it is asked again; the keepers go on with what they have
        read = {rank.name: record for rank in ranks if (record := self._record(rank))}
        if self._has_left:
            self._stop_all([rank.name for rank in ranks if rank.running and rank.name in read])
            read = {}
        heads = [rank.name for rank in ranks if rank.rank == 0]
        replicas = {
            name: record
            for name, record in read.items()
            if name in heads and record.ranks[0] == self._settings.address
        }
        for name, replica in list(self._kept.items()):
            if replicas.get(name) != replica.keeper.record:
                # A run changes what has the name and has not served yet. A successor may have its address.
                has_successor = replica.keeper.record.url in [record.url for record in replicas.values()]
                replica.end(leaves=not has_successor and name not in heads)
                del self._kept[name]
        for name in replicas.keys() - self._kept.keys():
            record = replicas[name]
            keeper = Keeper(record, Ranks(record, self._nodes), Health, self._events, self._memories)
            self._kept[name] = _SupervisedReplica(keeper, self._holds, self._events)

    def _record(self, rank: Rank) -> GenerationRecord | None:
        """The record of the rank; where it cannot be read, what is kept of the replica counts."""
        read = self._turns[rank.name].run(
            rank.name, "its record", lambda: records.read(rank.name, rank.generation)
        )
        replica = self._kept.get(rank.name)
        record = replica.keeper.record if replica else None
        return read or (record if record and record.generation == rank.generation else None)

    def _watch_membership(self) -> None:
        while not self._ended.wait(_MEMBERSHIP_S):
            self._turns["membership"].run("supervisor", "the membership", self._check_membership)

    def _check_membership(self) -> None:
        answer = has_left(self._settings.address, self._settings.members, self._client)
        self._has_left = self._has_left if answer is None else answer

    def _watch_standbys(self) -> None:
        while not self._ended.wait(takeover.TURN_S):
            if not self._has_left:
                self._turns["spares"].run("supervisor", "the spares", self._standbys.turn)

    def _stop_all(self, names: Sequence[str]) -> None:
        """What runs on a host that has left the cluster is another host's to run."""
        now = host_state.uptime()
        self._stopped_at = {name: at for name, at in self._stopped_at.items() if name in names}
        for name in names:
            if name not in self._stopped_at:
                self._events.add(name, "left", "this host has left the cluster: its rank is stopped")
            elif now - self._stopped_at[name] < _STOP_AGAIN_S:
                continue
            self._stopped_at[name] = now
            with contextlib.suppress(*EngineDown):  # after a pause, again
                self._containers.stop(name)

    def _write_state(self) -> None:
        """For `deploy status`, readable by all: it has no secrets."""
        replicas = {
            name: {
                **asdict(replica.keeper.state.status),
                "restarts": replica.keeper.state.memory.restarts,
                "last_reason": replica.keeper.state.memory.last_reason,
                "start_seconds": replica.keeper.state.memory.start_s,
                "generation": replica.keeper.record.generation,
                "routers": replica.registration.problems,
            }
            for name, replica in self._kept.items()
        }
        started = {"settings": self._settings.sha1, "version": headfirst.__version__}
        document = json.dumps({"uptime": host_state.uptime(), "replicas": replicas, **started})
        with contextlib.suppress(OSError):  # /run is full: the next second, again
            write_whole(STATE, document.encode())


class _Turns:
    """Turns of one kind of work. What one of them raises is an event, once, and ends no other turn."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._last = ""

    def run(self, name: str, what: str, turn: Callable[[], T]) -> T | None:
        """What one turn returns, None where it raises; an event is about the replica `name`."""
        try:
            result = turn()
        except Exception as error:
            text = f"{what}: {type(error).__name__}: {error}"
            if text != self._last:
                self._events.add(name, "error", text)
            self._last = text
            return None
        self._last = ""
        return result


class _SupervisedReplica:
    """A keeper and the registration of its replica, each in a thread of its own."""

    def __init__(self, keeper: Keeper, holds: Holds, events: Events) -> None:
        self.keeper, self._holds, self._events = keeper, holds, events
        self.registration = Registration(keeper.record, self._serves)
        self._ended = threading.Event()
        self._leaves = False
        self._stepped_at = time.monotonic()
        self._threads = [
            threading.Thread(target=work, name=keeper.record.name, daemon=True)
            for work in (self._keep, self._register)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it does its work."""
        alive = all(thread.is_alive() for thread in self._threads)
        return alive and time.monotonic() - self._stepped_at < _STUCK_S

    def end(self, *, leaves: bool = False) -> None:
        """Stop keeping; the ranks go on. `leaves`: they were removed, and the routers must not have them."""
        self._leaves = leaves
        self._ended.set()

    def _keep(self) -> None:
        turns = _Turns(self._events)
        while not self._ended.wait(_STEP_S):
            turns.run(self.keeper.record.name, "its supervision", self.keeper.step)
            self._stepped_at = time.monotonic()
        self.keeper.close()

    def _serves(self) -> bool | None:
        """As the keeper, and a hold counts before the keeper has seen it."""
        return None if self._holds.is_held(self.keeper.record.name) else self.keeper.state.serves

    def _register(self) -> None:
        turns = _Turns(self._events)
        while not self._ended.wait(registration.TURN_S):
            turns.run(self.keeper.record.name, "its registration", self.registration.turn)
        if self._leaves:
            self.registration.leave()


def _notify(state: str) -> None:
    """Report to systemd (sd_notify(3)); nothing where it did not start this process."""
    place = os.environ.get("NOTIFY_SOCKET")
    if not place:
        return
    address = "\0" + place[1:] if place.startswith("@") else place
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(state.encode(), address)
