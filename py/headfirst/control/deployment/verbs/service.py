"""The running services of a cluster: their state, their logs, a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from typing import Any, Literal

import httpx

from headfirst.common import container_names as names
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.control.credentials.identity import cluster_folder
from headfirst.control.credentials.secrets import Secrets, hidden
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.hosts.router_status import router_status
from headfirst.control.deployment.running.claim import current_credentials, known_credentials
from headfirst.control.live.chat import Chat
from headfirst.control.live.logs import ContainerLogLine, Logged
from headfirst.control.live.ssh_access.ssh import ssh
from headfirst.control.live.ssh_access.tunnel import tunnel
from headfirst.control.live.status import ReplicaTarget, WebuiTarget, cluster_status
from headfirst.control.live.status_types import ClusterStatus
from headfirst.control.live.supervision import supervision
from headfirst.control.live.watch import ReplicaWatch
from headfirst.control.run.history import RunRecord, read
from headfirst.decide import engines
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.diagnose.measured import Measured
from headfirst.decide.engines.base import Engine, Metrics, ReadinessProbe
from headfirst.decide.model import families
from headfirst.decide.plan.capabilities import of_command
from headfirst.decide.plan.types import Capabilities
from headfirst.decide.scrub import Scrubber

Part = Literal["router", "page", "proxy"]
_HEALTH_S = 5.0


def engine_of(service: Service) -> Engine:
    """The engine that the inventory names."""
    engine, _ = engines.of_service(service)
    return engine


def readiness_of(service: Service) -> ReadinessProbe:
    """How to find out that a replica of the service serves."""
    return engine_of(service).readiness(service.settings.task or families.task_of_id(service.model_id))


def metrics_of(service: Service) -> Metrics | None:
    """The figures that a replica of the service publishes; None where the user has switched them off."""
    engine = engine_of(service)
    values = engine.check_arguments(service.settings.engine_args).values
    return engine.metrics if engine.publishes(values) else None


def known_key(secrets: Secrets | None, service: Service) -> str | None:
    """The key of the service's API, None where it is not known yet."""
    return secrets.known_api_key(service.name) if secrets else None


def require_key(secrets: Secrets | None, service: Service, cluster: Cluster) -> str:
    """The key of the service's API. NotReadyError where it has none."""
    key = known_key(secrets, service)
    if key is None:
        raise NotReadyError(
            f"cluster {cluster.name} has no API key of {service}, neither here nor on its head",
            where=cluster.head.name,
            hint=f"Bring it up: deploy up {cluster.inventories[0]}",
        )
    return key


def status(cluster: Cluster, chosen: str | None = None) -> ClusterStatus:
    """Every rank's container, the engines and the chat page, asked in parallel."""
    page = WebuiTarget(host_access(cluster)[cluster.webui.name], cluster.webui_url)
    state = cluster_status(_targets(cluster, chosen), page)
    names_chosen = {service.name for service, _ in cluster.chosen(chosen)}
    services = [service for service in cluster.services if service.name in names_chosen]
    routers = router_status(cluster, services, known_credentials(cluster))
    ready = state.ready and all(router.ready for router in routers)
    runs = read(cluster_folder(cluster)).runs
    update = {
        "ready": ready,
        "routers": routers,
        "capabilities": _capabilities(cluster, state, runs),
        "measured": _measured(state, runs),
    }
    return state.model_copy(update=update)


def _capabilities(
    cluster: Cluster, state: ClusterStatus, runs: Sequence[RunRecord]
) -> dict[str, Capabilities]:
    """By service: what the last `up` here has planned, where its rank 0 runs so, else what this proves."""
    planned = {name: told for run in runs for name, told in run.capabilities.items()}
    running = {
        replica.service: of_command(engine_of(cluster.service(replica.service)), replica.ranks[0].argv)
        for replica in state.replicas
        if replica.ranks[0].argv
    }
    return {
        service: from_plan if (from_plan := planned.get(service)) and from_plan.agrees(from_run) else from_run
        for service, from_run in running.items()
    }


def _measured(state: ClusterStatus, runs: Sequence[RunRecord]) -> dict[str, Measured]:
    """By service: what the last `up` here has read of a start, where that is the start of its rank 0."""
    known = {name: told for run in runs for name, told in run.measured.items()}
    starts = {
        replica.service: replica.ranks[0].started_at for replica in state.replicas[::-1] if replica.ranks
    }
    return {name: told for name, told in known.items() if told.started_at == starts.get(name)}


def last_start(cluster: Cluster, service: Service) -> float | None:
    """Seconds of the last start of all its replicas, one after the other; None: not known."""
    replica = service.replicas[0]
    try:
        with ssh(host_access(cluster)[replica.head.name]) as client:
            state = supervision(client).get(service.container(replica))
    except HeadfirstError:  # the head does not answer
        return None
    return state.start_seconds * len(service.replicas) if state and state.start_seconds else None


def watch(cluster: Cluster, chosen: str | None = None) -> AbstractContextManager[ReplicaWatch]:
    """The replicas and their ranks, for as many readings as needed."""
    return closing(ReplicaWatch(_targets(cluster, chosen)))


def _targets(cluster: Cluster, chosen: str | None) -> list[ReplicaTarget]:
    access, secrets = host_access(cluster), known_credentials(cluster)
    return [
        ReplicaTarget(
            str(service),
            replica.index,
            [access[host.name] for host in replica.hosts],
            replica.url,
            readiness_of(service),
            known_key(secrets, service),
            service.container(replica),
            metrics_of(service),
            replica.role,
            [place.devices for place in replica.places],
        )
        for service, replica in cluster.chosen(chosen)
    ]


def logged(cluster: Cluster, chosen: str | None, rank: str | None, part: Part | None) -> list[Logged]:
    """The ranks of these replicas: all, or those on the host named so (or with that number); or a part."""
    access, replicas = host_access(cluster), cluster.chosen(chosen)
    page = access[cluster.webui.name]
    if part == "router":
        return _routers(access, [service for service, _ in replicas])
    if part == "proxy" and not cluster.has_proxy:
        raise InputError("the cluster has no proxy", hint="proxy=true in the inventory starts one.")
    if part:
        return [Logged(part, page, names.PROXY if part == "proxy" else names.WEBUI)]
    ranks = [
        (
            number,
            Logged(
                f"{service}/{replica.index} rank {number}" if len(replicas) > 1 else f"rank {number}",
                access[place.name],
                service.container(replica),
            ),
        )
        for service, replica in replicas
        for number, place in enumerate(replica.hosts)
    ]
    selected = [logged for number, logged in ranks if rank in (None, logged.access.host, str(number))]
    if not selected:
        listed = ", ".join(f"{number} ({logged.access.host})" for number, logged in ranks)
        raise InputError(f"no rank on {rank}", hint=f"Ranks: {listed}.")
    return selected


def _routers(access: Mapping[str, HostAccess], services: Sequence[Service]) -> list[Logged]:
    routers = {
        (service.name, router.host.name): Logged(
            f"{service} router", access[router.host.name], names.router(service.name)
        )
        for service in services
        for router in service.routers
    }
    if not routers:
        raise InputError(
            "no service here has a router",
            hint="Services with several replicas have one, and all with a group [router].",
        )
    return list(routers.values())


def without_secrets(cluster: Cluster, lines: Iterable[ContainerLogLine]) -> Iterator[ContainerLogLine]:
    """The lines with secrets masked: an engine may log its arguments and environment when it starts."""
    scrubber = Scrubber(hidden(cluster, known_credentials(cluster)))
    for line in lines:
        yield line._replace(text=scrubber.text(line.text))


@contextmanager
def open_chat(
    cluster: Cluster, system: str | None, chosen: str | None, parameters: Mapping[str, Any]
) -> Iterator[Chat]:
    """A conversation with a model, through an SSH tunnel; `parameters` are those of each request."""
    service, _ = cluster.chosen(chosen)[0]
    with (
        open_api(cluster, chosen) as (url, key),
        Chat(url, service.served_model_name, key, system, parameters) as chat,
    ):
        yield chat


@contextmanager
def open_api(
    cluster: Cluster, chosen: str | None, *, timed: bool = False, routed: bool = True
) -> Iterator[tuple[str, str]]:
    """The address of a service on this machine, through an SSH tunnel, and the key of its API.

    It is that of the first router that answers; that of the head where there is none, where `chosen` names
    a replica, or without `routed`. `timed`: the times of its answers are measured. InputError for a replica
    of prefill or of decode, which answers nothing alone.
    """
    service, replica = cluster.chosen(chosen)[0]
    if replica.role and "/" in (chosen or ""):
        raise InputError(
            f"{chosen} is a {replica.role} replica, which answers no request alone",
            hint=f"Leave the number out: --service {service}",
        )
    key = require_key(current_credentials(cluster), service, cluster)
    access = host_access(cluster)
    if not (replica.role or (routed and is_routed(service, chosen))):
        with tunnel(access[replica.head.name], replica.url, timed=timed) as url:
            yield url, key
        return
    with ExitStack() as stack:
        yield _open_router(service, access, stack, timed=timed), key


def is_routed(service: Service, chosen: str | None) -> bool:
    """Whether requests go through a router: there is one, and `chosen` names no replica."""
    return bool(service.routers) and "/" not in (chosen or "")


def _open_router(service: Service, access: Mapping[str, HostAccess], stack: ExitStack, *, timed: bool) -> str:
    for router in service.routers:
        with suppress(NotReadyError, httpx.HTTPError):
            url = stack.enter_context(tunnel(access[router.host.name], router.url, timed=timed))
            if httpx.get(f"{url}/health", timeout=_HEALTH_S, trust_env=False).is_success:
                return url
    listed = ", ".join(router.url for router in service.routers)
    raise NotReadyError(f"no router of {service} answers: {listed}", hint="`deploy status` shows what runs.")
