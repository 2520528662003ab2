"""A run's right to change the hosts of a cluster: the lock, the owner records, the agreed credentials."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.credentials import identity, secrets
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.inventory.inventory import state_of
from headfirst.control.ownership import requests
from headfirst.control.ownership.holder import who
from headfirst.control.ownership.lease import Lease, States, locked, look
from headfirst.control.ownership.records import HostState, Owner
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.decide.cluster.types import Cluster


@contextlib.contextmanager
def run_lock(cluster: Cluster, options: RunOptions, verb: str, reporter: Reporter) -> Iterator[Lease]:
    """Lock every host that the run acts on. NotReadyError: a host is another cluster's, or locked.

    InputError: the inventory was written since the cluster was read, as by the run that had the lock.
    """
    access = host_access(cluster)
    with locked(
        [access[host.name] for host in cluster.limited_hosts],
        verb,
        cluster.name,
        judge=partial(refuse_foreign, cluster),
        wait_s=options.wait_s,
        on_wait=partial(reporter.warn, "lock", "lock", cluster.head.name),
    ) as lease:
        if changed := sorted(name for name, *_ in cluster.files ^ state_of(cluster.inventories)):
            raise InputError(
                "the inventory was changed while this run waited or prepared, and nothing was done",
                where=changed[0],
                hint="Run the same command again: it follows the inventory as it is now.",
            )
        yield lease


@dataclass(frozen=True)
class ClaimedCluster:
    """Locked hosts that carry this cluster's owner record, and its credentials."""

    cluster: Cluster
    lease: Lease
    id: str
    secrets: Secrets
    before: Secrets | None
    """What the cluster, or else this controller, had when the run began."""

    def change(self, credentials: Secrets) -> ClaimedCluster:
        """Replace the credentials, on the head and then here."""
        _record(self.cluster, self.lease, self.id, credentials)
        secrets.save(self.cluster, credentials)
        return replace(self, secrets=credentials)


@contextlib.contextmanager
def claimed(cluster: Cluster, options: RunOptions, verb: str, reporter: Reporter) -> Iterator[ClaimedCluster]:
    """Lock the hosts and make them this cluster's."""
    with run_lock(cluster, options, verb, reporter) as lease:
        head = lease.states.get(cluster.head.name)
        id = identity.bind(cluster, _remembered_id(cluster, lease.states))
        before = _on_head(head, id) or secrets.existing(cluster)
        agreed = _agree(cluster, head, id, reporter)
        _record(cluster, lease, id, agreed)
        yield ClaimedCluster(cluster, lease, id, agreed, before)


def foreign(cluster: Cluster, states: States) -> dict[str, Owner]:
    """Hosts that belong to another cluster, with their owners."""
    return {
        host: state.owner
        for host, state in states.items()
        if state.owner is not None and not is_ours(cluster, state.owner)
    }


def is_ours(cluster: Cluster, owner: Owner) -> bool:
    """Whether the record is of this cluster. A controller without an id of its own accepts name and head."""
    cluster_id = identity.existing(cluster)
    if cluster_id is not None:
        return owner.id == cluster_id
    same = owner.cluster == cluster.name and owner.head == cluster.head.address
    return same and bool(owner.id) and identity.bound_elsewhere(owner.id, cluster) is None


def refuse_foreign(cluster: Cluster, states: States) -> None:
    """Raise NotReadyError for hosts that belong to another cluster, with the command that releases them."""
    owners = foreign(cluster, states)
    if owners:
        host, owner = next(iter(owners.items()))
        raise NotReadyError(
            f"the host belongs to {owner}", where=host, hint="\n".join(_release_hints(cluster, owners))
        )


def _release_hints(cluster: Cluster, owners: Mapping[str, Owner]) -> list[str]:
    lines = []
    for owner in dict.fromkeys(owners.values()):
        hosts = [host for host, other in owners.items() if other == owner]
        elsewhere = identity.bound_elsewhere(owner.id, cluster)
        down = f"deploy down {elsewhere or 'INVENTORY'}"
        lines.append(
            f"{', '.join(hosts)}: `{down}` with the inventory of {owner.cluster} stops its service and "
            f"releases them. To take them from it: deploy release {cluster.inventories[0]} "
            f"--limit {','.join(hosts)} --cluster {owner.cluster}"
        )
    return lines


def peek(cluster: Cluster) -> Secrets | None:
    """For check mode: refuse what a run would refuse, and return the credentials that it would use.

    None where it would make them.
    """
    access = host_access(cluster)
    states = look([access[host.name] for host in cluster.limited_hosts])
    refuse_foreign(cluster, states)
    return _on_head(states.get(cluster.head.name), identity.existing(cluster)) or secrets.existing(cluster)


def current_credentials(cluster: Cluster) -> Secrets | None:
    """The credentials that the service has now: those on the head, else those here. They are kept here."""
    state = look([host_access(cluster)[cluster.head.name]])[cluster.head.name]
    if state.owner is None:
        return secrets.existing(cluster)
    refuse_foreign(cluster, {cluster.head.name: state})
    if state.credentials is None:
        return secrets.existing(cluster)
    identity.bind(cluster, state.owner.id)
    if state.credentials != secrets.existing(cluster):
        secrets.save(cluster, state.credentials)
    return state.credentials


def known_credentials(cluster: Cluster) -> Secrets | None:
    """The credentials here, else those on the head; None where neither can be had."""
    credentials = secrets.existing(cluster)
    if credentials is None:
        # A host that does not answer is a row of the status, not its end.
        with contextlib.suppress(NotReadyError):
            credentials = current_credentials(cluster)
    return credentials


def _remembered_id(cluster: Cluster, states: States) -> str | None:
    """The id that the hosts remember, for a controller that has none: all owners here are this cluster's."""
    for state in states.values():
        if state.owner is not None:
            return state.owner.id
    kept_owner = states[cluster.head.name].kept_owner if cluster.head.name in states else None
    return kept_owner.id if kept_owner and is_ours(cluster, kept_owner) else None


def _on_head(head: HostState | None, id: str | None) -> Secrets | None:
    """The credentials on the head; None where it has none, or was not asked."""
    if head is None:
        return None
    if head.owner is not None:
        return head.credentials
    # What a stopped service left with its data opens that data only.
    same = head.kept_owner is not None and id in (None, head.kept_owner.id)
    return head.kept_credentials if same else None


def _agree(cluster: Cluster, head: HostState | None, id: str, reporter: Reporter) -> Secrets:
    here = secrets.existing(cluster)
    there = _on_head(head, id)
    if there is None:
        if here is None and head is None:
            raise NotReadyError(
                "this controller has no credentials of the cluster, and --limit leaves out the head",
                where=cluster.head.name,
                hint=f"Run `deploy credentials {cluster.inventories[0]}` once, or leave out --limit.",
            )
        return here or secrets.load_or_create(cluster)
    # Credentials of an earlier version have no such secret: each reading makes one.
    if here is not None and here.model_copy(update={"supervisor_secret": there.supervisor_secret}) != there:
        reporter.warn(
            "lock",
            "credentials",
            cluster.head.name,
            "its credentials differ from those on this controller and are used: all controllers share them",
        )
    if here != there:
        secrets.save(cluster, there)
    return there


def _record(cluster: Cluster, lease: Lease, id: str, credentials: Secrets) -> None:
    owner = {
        "id": id,
        "cluster": cluster.name,
        "service": ", ".join(service.served_model_name for service in cluster.services),
        "who": who(),
        "head": cluster.head.address,
    }
    head = [access for access in lease.hosts if access.host == cluster.head.name]
    workers = [access for access in lease.hosts if access not in head]
    text = secrets.document(credentials)
    requests.ask_all(head, "own", token=lease.token, owner=owner, credentials=text)
    requests.ask_all(workers, "own", token=lease.token, owner=owner)
