"""`deploy events`: what the supervisors of all hosts did and why, in one order."""

from __future__ import annotations

from datetime import datetime, timezone

from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import (
    Cause,
    Profile,
    profile,
)
from pydantic import BaseModel, ConfigDict

from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.control.deployment.engine import engine_of
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.live.each import try_each
from headfirst.control.live.supervision import HostEvent, history
from headfirst.decide.cluster.types import Cluster, Replica, Service


class Event(BaseModel):
    """One event. `at` is UTC by this machine's clock; `cause` and `fix` are of the rule for its log."""

    model_config = ConfigDict(frozen=True)

    at: datetime
    host: str
    service: str
    replica: int
    kind: str
    text: str
    cause: str = ""
    fix: str = ""
    log: list[str] = []


class History(BaseModel):
    """All events, the oldest first.

    `silent` hosts did not answer, with the reason. `damaged` is how many lines of a host's history are no
    events; a host without any is not listed.
    """

    model_config = ConfigDict(frozen=True)

    events: list[Event]
    silent: dict[str, str]
    damaged: dict[str, int]


def events(cluster: Cluster, chosen: str | None = None, *, since: datetime | None = None) -> History:
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
    histories = {host: one for host, one in answers.items() if not isinstance(one, HeadfirstError)}
    found = [
        _event(host, one, *replicas[one.name], logs[one.name])
        for host, its in histories.items()
        for one in its.events
        if one.name in replicas
    ]
    kept = [one for one in found if since is None or one.at >= since]
    damaged = {host: its.damaged for host, its in histories.items() if its.damaged}
    return History(events=sorted(kept, key=lambda one: one.at), silent=silent, damaged=damaged)


def _event(host: str, found: HostEvent, service: Service, replica: Replica, log: Profile) -> Event:
    rank, cause = _cause(found, log)
    elsewhere = f"It began on rank {rank} ({_address(replica, rank)}): " if rank != found.rank else ""
    return Event(
        at=datetime.fromtimestamp(found.at, timezone.utc),
        host=host,
        service=str(service),
        replica=replica.index,
        kind=found.kind,
        text=found.text,
        cause=elsewhere + cause.reason if cause else "",
        fix=cause.hint if cause else "",
        log=found.log if rank == found.rank else found.logs[rank],
    )


def _cause(found: HostEvent, log: Profile) -> tuple[int, Cause | None]:
    """The rank where the failure began, and its cause: not a rank that only lost another one."""
    own = log.find_cause(found.log)
    if own is None or not own.echo:
        return found.rank, own
    causes = {rank: log.find_cause(lines) for rank, lines in sorted(found.logs.items())}
    return next(((rank, one) for rank, one in causes.items() if one and not one.echo), (found.rank, own))


def _address(replica: Replica, rank: int) -> str:
    return replica.hosts[rank].address if rank < len(replica.hosts) else "no host of the inventory"
