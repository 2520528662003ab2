"""One replica's ranks with dummy weights: the head first, then the others, until they serve or one fails."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from headfirst.common import container_names as names
from headfirst.common.errors import HeadfirstError
from headfirst.common.state_files import replace_file
from headfirst.control.checkpoints.small_files import Files
from headfirst.control.evidence.collect import collect
from headfirst.control.rehearsal.rank import Rank, RankEvent, Told
from headfirst.control.rehearsal.result import RehearsedReplica, State
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.diagnose import events
from headfirst.decide.diagnose.decide import diagnose
from headfirst.decide.diagnose.phases import phases
from headfirst.decide.diagnose.subject import Subject
from headfirst.decide.diagnose.types import Diagnosis, Event, NodeFacts
from headfirst.decide.plan.types import Node, PlannedReplica, Readiness

_TICK_S = 0.5
# After the first rank has ended: the others write their last lines.
_SETTLE_S = 3.0
_STOP_S = 10
# Rules whose advice is to read the log, with a verb that reads that of ranks that serve.
_IN_LOG = ("unknown-error", "rank-ended")
_JOIN_S = 60.0


@dataclass(frozen=True)
class Rehearsing:
    """What the rehearsal of one replica needs.

    `subject` has the model's name and the key that are made for it. `folders` are those of the model;
    `complete`: files of which one is in each that is whole. `small_files` reads what is sent to hosts
    without these; HeadfirstError where it cannot. `texts`: contents of the files with keys, by their path in
    the container. `secrets` are hidden in all that comes back. `beside`: by host, all containers of the run.
    """

    service: str
    replica: PlannedReplica
    readiness: Readiness
    access: Mapping[str, HostAccess]
    subject: Subject
    folders: list[str]
    complete: list[str]
    small_files: Callable[[], Files]
    texts: Mapping[str, str]
    secrets: list[str]
    beside: Mapping[str, list[str]]
    seconds: int
    logs: Path  # a folder, of which this replica has the files of its name
    left_out: list[str] = field(default_factory=list)
    strict: bool = False  # a failure ends the run beside which it is


def rehearse(
    what: Rehearsing, *, stop: Callable[[], bool] = lambda: False, note: Callable[[str, int], None]
) -> RehearsedReplica:
    """Start the ranks, ask them once, and end them.

    `stop` is asked all the time; `note` gets what happens, and how many ranks have started.
    """
    return _Rehearsal(what, stop, note).result()


@dataclass
class _Outcome:
    state: State
    why: str = ""
    host: str = ""
    fix: str = ""
    blocked: str = ""  # why this host does not reach rank 0


class _Rehearsal:
    def __init__(self, what: Rehearsing, stop: Callable[[], bool], note: Callable[[str, int], None]) -> None:
        self._what, self._stop, self._note = what, stop, note
        self._told: queue.Queue[Told] = queue.Queue()
        nodes = what.replica.nodes
        self._ranks = [Rank(node, what.access[node.host], self._request(node), self._told) for node in nodes]
        self._running: list[Rank] = []  # those whose scripts were started
        self._files: Files | None = None
        self._listening = False
        self._started = 0
        self._began = time.time()

    def result(self) -> RehearsedReplica:
        """Run it to its end."""
        try:
            outcome = self._outcome()
            ended = time.time()
            nodes = self._evidence() if outcome.state in ("passed", "failed") else []
        finally:
            self._end()
        return self._judged(outcome, nodes, ended)

    def _outcome(self) -> _Outcome:
        self._start(self._ranks[0])
        deadline = time.monotonic() + self._what.seconds
        while time.monotonic() < deadline:
            if self._stop():
                return _Outcome("stopped", "it was stopped before its end")
            try:
                told = self._told.get(timeout=_TICK_S)
            except queue.Empty:
                continue
            if outcome := self._after(told):
                return outcome
        why = f"the ranks did not serve within {self._what.seconds} s"
        return _Outcome("failed", why, self._ranks[0].node.host)

    def _after(self, told: Told) -> _Outcome | None:
        host = told.rank.node.host
        if told.event is None:
            if not isinstance(told.error, HeadfirstError):
                raise told.error or HeadfirstError("its host is lost", where=host)
            return _Outcome("not rehearsed", told.error.what, host, told.error.hint or "")
        event = told.event
        match event.event:
            case "folders":
                return self._send(told.rank, event)
            case "started":
                self._started += 1
                self._note(f"rank {told.rank.node.rank} on {host} has started", self._started)
                for rank in self._ranks[1:] if told.rank is self._ranks[0] else ():
                    self._start(rank)
                if self._listening and told.rank is not self._ranks[0]:
                    told.rank.reach()
            case "listening":
                self._listening = True
                for rank in self._running[1:]:
                    rank.reach()
            case "unreachable":
                return _Outcome("failed", host=host, blocked=event.why)
            case "serving":
                return _Outcome("passed")
            case "exited":
                time.sleep(_SETTLE_S)
                return _Outcome("failed", f"a rank ended with code {event.code}", host)
            case "failed":
                return _Outcome("failed", event.why, host)
            case "refused":
                return _Outcome("not rehearsed", event.why, host)
            case "gone":
                return _Outcome("not rehearsed", "its script has ended", host)
        return None

    def _start(self, rank: Rank) -> None:
        self._running.append(rank)
        rank.start()

    def _send(self, rank: Rank, event: RankEvent) -> _Outcome | None:
        try:
            self._files = self._files or self._what.small_files()
        except HeadfirstError as error:
            missing = ", ".join(event.missing)
            return _Outcome("not rehearsed", f"{missing} is not there: {error.what}", rank.node.host)
        rank.folders({folder: self._files.get(folder, {}) for folder in event.missing})
        return None

    def _evidence(self) -> list[NodeFacts]:
        """Of the hosts whose ranks were started: others have no container, which is no cause."""
        targets = [self._what.access[rank.node.host] for rank in self._running]
        container = self._what.replica.nodes[0].container.name
        url, subject = self._what.replica.engine_url, self._what.subject
        return collect(targets, url, subject, self._what.secrets, container=container)

    def _end(self) -> None:
        """Rank 0 first: the others of SGLang ignore the signal, and leave when it goes.

        At once where the real ranks may be waiting.
        """
        for rank in self._running:
            rank.stop(0 if self._stop() else _STOP_S)
            rank.join(_JOIN_S if rank is self._ranks[0] and not self._stop() else 0)
        for rank in self._running:
            rank.join(_JOIN_S)

    def _judged(self, outcome: _Outcome, nodes: list[NodeFacts], ended: float) -> RehearsedReplica:
        found = self._found(outcome, nodes) if nodes else None
        cause = found.decisive if found and outcome.state == "failed" else None
        logs = self._keep_logs(nodes) if outcome.state == "failed" else ""
        fix = cause.fix if cause else outcome.fix
        return RehearsedReplica(
            service=self._what.service,
            replica=self._what.replica.index,
            state=outcome.state,
            why=cause.means if cause else outcome.why,
            # The containers are gone by the time that a person reads this.
            fix=f"Read the logs of its ranks: {logs}" if cause and cause.rule in _IN_LOG else fix,
            host=cause.host if cause else outcome.host,
            seconds=round(ended - self._began, 1),
            phases=self._phases(nodes[0], ended) if nodes else {},
            left_out=self._what.left_out,
            logs=logs,
            found=found,
        )

    def _keep_logs(self, nodes: list[NodeFacts]) -> str:
        """Write the logs of all ranks, in which secrets are hidden; the folder."""
        folder = self._what.logs
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{self._what.service.replace('/', '_')}-{self._what.replica.index}"
        for node in nodes:
            lines = node.container.log if node.container else ()
            text = "".join(f"{_stamp(line.at)} {line.text}\n" for line in lines)
            replace_file(folder / f"{name}-rank{node.rank}-{node.host}.log", text)
        return str(folder)

    def _found(self, outcome: _Outcome, nodes: list[NodeFacts]) -> Diagnosis:
        found = diagnose(nodes, self._what.subject, self._what.replica.nodes[0].container.name)
        if found.decisive and found.decisive.rule == "no-container":  # `outcome` has what Docker stated
            found = found.model_copy(update={"decisive": None})
        if not outcome.blocked:
            return found
        head = self._what.replica.nodes[0]
        node = next(node for node in nodes if node.host == outcome.host)
        words: dict[str, Any] = {
            "port": self._what.replica.rendezvous_ports[0],
            "head": f"{head.host} ({head.address})",
            "why": outcome.blocked,
        }
        blocked = events.event(node, self._what.subject, "rendezvous-blocked", node.now, **words)
        known = found.decisive if found.decisive and found.decisive.weight == "cause" else None
        then: list[Event] = [*([found.decisive] if found.decisive and not known else []), *found.then]
        return found.model_copy(update={"decisive": known or blocked, "then": then})

    def _phases(self, head: NodeFacts, ended: float) -> dict[str, float]:
        container = head.container
        if container is None:
            return {}
        return phases(self._what.subject.log, container.log, container.started_at, ended)

    def _request(self, node: Node) -> dict[str, Any]:
        """The first line for the node script."""
        what, container = self._what, node.container
        replica, first = what.replica, node.rank == 0
        spans = len(replica.nodes) > 1 and bool(replica.rendezvous_ports)
        return {
            "runtime": node.docker_run[0],
            "name": container.name,
            "prefix": f"{names.REHEARSAL}-",
            "folder": names.rehearsal_folder(container.name),
            "beside": what.beside[node.host],
            "image": container.image,
            "cuda": bool(container.gpus or any("nvidia.com/gpu" in device for device in container.devices)),
            "gpus": node.gpu_devices,
            "folders": what.folders,
            "complete": what.complete,
            "files": {**container.files, **_mounted(container.volumes, what.texts), **self._env_file(node)},
            "once": [container.env_file] if container.env_file else [],
            "run": node.docker_run,
            "listens": replica.rendezvous_ports[0] if first and spans else None,
            "head": None if first or not spans else [replica.nodes[0].address, replica.rendezvous_ports[0]],
            "ready": self._ready() if first else None,
        }

    def _env_file(self, node: Node) -> dict[str, str]:
        path = node.container.env_file
        variables = self._what.replica.secret_env
        return {path: "".join(f"{name}={text}\n" for name, text in variables.items())} if path else {}

    def _ready(self) -> dict[str, Any]:
        readiness, subject = self._what.readiness, self._what.subject
        return {
            "url": self._what.replica.engine_url,
            "path": readiness.path,
            "probe_path": readiness.probe_path,
            "body": {**readiness.probe_body, "model": subject.model},
            "key": subject.api_key,
        }


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")


def _mounted(volumes: list[str], texts: Mapping[str, str]) -> dict[str, str]:
    """The texts of files that are mounted, by their path on the host."""
    places = {target: source for source, target, *_ in (volume.split(":") for volume in volumes)}
    return {places[path]: text for path, text in texts.items() if path in places}
