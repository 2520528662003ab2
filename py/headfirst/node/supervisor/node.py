"""This node's part: it reads its own ranks, and starts and stops them for the supervisor of rank 0."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from http import HTTPStatus
from weakref import WeakValueDictionary

from headfirst.common.untrusted import UntrustedError
from headfirst.node.peers.authentication import Admission
from headfirst.node.peers.server import PeerHandler, PeerServer
from headfirst.node.supervisor import messages, records
from headfirst.node.supervisor.containers import Containers, EngineDown, Rank
from headfirst.node.supervisor.host_state import Holds
from headfirst.node.supervisor.messages import RankRequest, Seen
from headfirst.node.supervisor.takeover import Agreement

_WEIGHTS_JOB = "headfirst-job-weights.service"


class NodeRanks:
    """Carries out requests. Safe to use from threads: for one replica, one is carried out at a time."""

    def __init__(self, containers: Containers, holds: Holds, agreement: Agreement) -> None:
        self._containers, self._holds, self._agreement = containers, holds, agreement
        # A lock is there while a request for its name is carried out: members may send any name.
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._locks_lock = threading.Lock()

    def answer(self, request: RankRequest, address: str) -> Seen:
        """What becomes of a request that comes from `address`."""
        if request.do == "member":
            return Seen()
        with self._locks_lock:
            lock = self._locks.setdefault(request.name, threading.Lock())
        with lock:
            try:
                return self._answer(request, address)
            except EngineDown as error:
                return Seen(held=self._holds.is_held(request.name), problem=f"Docker: {error}")

    def _answer(self, request: RankRequest, address: str) -> Seen:
        if request.do in ("prepare", "activate"):
            return self._take_over(request, address)
        rank = self._containers.rank(request.name)
        if rank is None:
            return Seen(held=self._holds.is_held(request.name))
        if request.do != "look" and (refused := self._refusal(request, rank, address)):
            return self._seen(rank, refused)
        if request.do == "log":
            return Seen(rank.generation, rank.running, log=tuple(self._log(rank)))
        if request.do == "stop" and (rank.running or "paused" in rank.ended):
            self._containers.stop(request.name)
        if request.do == "start" and not rank.running:
            if weights_come():
                return self._seen(rank, "a job brings weights to this node")
            self._containers.start(request.name)
        return self._seen(self._containers.rank(request.name) or rank, "")

    def _refusal(self, request: RankRequest, rank: Rank, address: str) -> str:
        """Why nothing is started, stopped or read; only rank 0 of the generation that is here may ask."""
        if request.do != "log" and self._holds.is_held(request.name):
            return "the replica is being changed"
        if rank.generation != request.generation:
            return "it has another version of the replica"
        record = records.read(rank.name, rank.generation)
        if record is None:
            return "the version has not served yet"
        return "" if address == record.ranks[0] else f"{address} is not its head"

    def _take_over(self, request: RankRequest, address: str) -> Seen:
        """Agree to a generation that waits, or activate it, for the supervisor of the spare."""
        standby = records.standby(request.name, request.generation)
        if standby is None:
            active = records.read(request.name, request.generation) is not None
            return Seen(problem="" if active else "it has no such generation")
        if self._holds.is_held(request.name):
            return Seen(held=True, problem="the replica is being changed")
        if address != standby.spare:
            return Seen(problem=f"{address} is not the spare")
        agrees = self._agreement.prepare if request.do == "prepare" else self._agreement.activate
        if why := agrees(standby):
            return Seen(problem=why)
        if request.do == "activate":
            # In this order: as long as the record waits, what was interrupted in between is done again.
            self._containers.activate(request.name, request.generation)
            records.activate(request.name, request.generation)
        return Seen(request.generation)

    def _seen(self, rank: Rank, problem: str) -> Seen:
        is_held = self._holds.is_held(rank.name)
        return Seen(rank.generation, rank.running, rank.start, rank.ended, is_held, problem)

    def _log(self, rank: Rank) -> list[str]:
        record = records.read(rank.name, rank.generation)
        lines = self._containers.log(rank.name)
        for secret in record.secrets if record else ():
            lines = [line.replace(secret, "***") for line in lines]
        return lines


def weights_come() -> bool:
    """Whether the job of the role `weights` runs: it may replace what the ranks would load."""
    return subprocess.run(["systemctl", "is-active", "--quiet", _WEIGHTS_JOB], check=False).returncode == 0


class SupervisorListener(PeerServer):
    """Answers the supervisors of other nodes; to one that left the cluster it proves that it did."""

    hears_strangers = True

    def __init__(self, place: tuple[str, int], keys: Mapping[str, str], token: str, node: NodeRanks) -> None:
        """`keys` by the addresses of the other members; `token` proves to strangers that they are none."""
        self.admission, self.node = Admission(token), node
        self._admissions = {address: Admission(key) for address, key in keys.items()}
        super().__init__(place, _SupervisorHandler, keys)

    def admission_of(self, address: str) -> Admission:
        """The one that has the key of this member."""
        return self._admissions.get(address, self.admission)


class _SupervisorHandler(PeerHandler):
    server: SupervisorListener
    timeout = 20.0

    def do_POST(self) -> None:
        """Carry out a request."""
        # Who asks whom is proven, too: a request is worth nothing when it is sent back to its sender.
        listener, address = self.connection.getsockname()[0], self.client_address[0]
        admitted = self.admitted_body(messages.LONGEST, address, listener)
        if admitted is None:
            return
        words, body = admitted
        try:
            request = messages.request(body, where=address)
        except UntrustedError:
            self.refuse(HTTPStatus.BAD_REQUEST)
            return
        self.answer(words, messages.encode(self.server.node.answer(request, address)))
