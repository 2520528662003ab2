"""`deploy events`: what the supervisors of all hosts did and why, in one order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from ansible_collections.headfirst.serving.plugins.plugin_utils import failure_causes as causes
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import Profile, profile
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line, Symptom

from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.control.credentials.secrets import hidden
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.running.claim import known_credentials
from headfirst.control.deployment.verbs.service import engine_of
from headfirst.control.live.clock import Clock
from headfirst.control.live.ssh_access.ssh import try_each
from headfirst.control.live.supervision import HostEvent, history
from headfirst.decide.cluster.types import Cluster, Replica, Service
from headfirst.decide.frozen import Tolerant
from headfirst.decide.scrub import Scrubber


class ReplicaEvent(Tolerant):
    """One event. `at` is UTC by this machine's clock; `cause` and `fix` are of the rule for its log."""

    at: datetime
    host: str
    service: str
    replica: int
    kind: str
    text: str
    cause: str = ""
    fix: str = ""
    log: list[str] = []


class EventHistory(Tolerant):
    """All events, the oldest first.

    `silent` hosts did not answer, with the reason. `damaged` is how many lines of a host's history are no
    events; a host without any is not listed.
    """

    events: list[ReplicaEvent]
    silent: dict[str, str]
    damaged: dict[str, int]


def events(cluster: Cluster, chosen: str | None = None, *, since: datetime | None = None) -> EventHistory:
    """The history of the replicas. NotReadyError where no host answers."""
    access = host_access(cluster)
    replicas = {service.container(replica): (service, replica) for service, replica in cluster.chosen(chosen)}
    hosts = [access[host.name] for host in cluster.nodes]
    answers = try_each(hosts, history)
    for answer in answers.values():
        if isinstance(answer, InputError):  # the login of the inventory, not the host
            raise answer
    silent = {host: error.what for host, error in answers.items() if isinstance(error, HeadfirstError)}
    if len(silent) == len(hosts):
        host, reason = next(iter(silent.items()))
        raise NotReadyError(reason, where=host, hint=f"Try: {access[host].ssh_command('true')}")
    logs = {name: profile(engine_of(service).log()) for name, (service, _) in replicas.items()}
    histories = {host: answer for host, answer in answers.items() if not isinstance(answer, HeadfirstError)}
    clocks = {host: host_history.clock for host, host_history in histories.items()}
    all_events = [
        _event(host, event, *replicas[event.name], logs[event.name], clocks)
        for host, host_history in histories.items()
        for event in host_history.events
        if event.name in replicas
    ]
    # An engine may log its arguments and environment when it ends.
    scrubber = Scrubber(hidden(cluster, known_credentials(cluster)))
    shown = [
        event.model_copy(update=scrubber.value(event.model_dump(include={"text", "cause", "fix", "log"})))
        for event in all_events
        if since is None or event.at >= since
    ]
    damaged = {host: host_history.damaged for host, host_history in histories.items() if host_history.damaged}
    return EventHistory(events=sorted(shown, key=lambda event: event.at), silent=silent, damaged=damaged)


def _event(
    host: str,
    event: HostEvent,
    service: Service,
    replica: Replica,
    log: Profile,
    clocks: Mapping[str, Clock],
) -> ReplicaEvent:
    lines = {
        rank: causes.stamped(text, _clock(replica, rank, host, clocks).offset, event.at)
        for rank, text in {event.rank: event.log, **event.logs}.items()
    }
    rank, cause = _cause(event, log, lines)
    elsewhere = f"It began on rank {rank} ({_address(replica, rank)}): " if rank != event.rank else ""
    return ReplicaEvent(
        at=datetime.fromtimestamp(event.at, timezone.utc),
        host=host,
        service=str(service),
        replica=replica.index,
        kind=event.kind,
        text=event.text,
        cause=elsewhere + cause.means if cause else "",
        fix=cause.fix if cause else "",
        log=[line.text for line in lines[rank]],
    )


def _cause(event: HostEvent, log: Profile, lines: Mapping[int, Sequence[Line]]) -> tuple[int, Symptom | None]:
    """The rank where the failure began, and its cause; None where no log has one."""
    symptoms = {rank: causes.in_log(log, stamped) for rank, stamped in lines.items()}
    weights = {symptom.weight for symptom in symptoms[event.rank]}
    only_lost = bool(weights) and weights <= {"consequence", "note"}
    for rank, seen in symptoms.items():
        # Of the other ranks no record has whether they ended; where this one lost a peer, one did.
        ended = event.at if rank == event.rank or only_lost else causes.died_at(log, lines[rank])
        exit_code = 1 if rank == event.rank and event.kind == "ended" else None
        end = causes.end_of(log, lines[rank], seen, rank=rank, ended=ended, exit_code=exit_code)
        seen += [end] if end else []
    cause = causes.decisive([symptom for seen in symptoms.values() for symptom in seen])
    if cause is None or cause.rule == "rank-ended":  # the text of the event has how it ended
        return event.rank, None
    return next(rank for rank, seen in symptoms.items() if any(symptom is cause for symptom in seen)), cause


def _clock(replica: Replica, rank: int, host: str, clocks: Mapping[str, Clock]) -> Clock:
    """The clock of a rank's host, that of the host of the event where the rank's does not answer."""
    name = replica.hosts[rank].name if rank < len(replica.hosts) else host
    return clocks.get(name, clocks[host])


def _address(replica: Replica, rank: int) -> str:
    return replica.hosts[rank].address if rank < len(replica.hosts) else "no host of the inventory"
