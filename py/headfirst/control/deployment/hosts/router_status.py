"""What the routers of a cluster do now, asked in parallel through SSH."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headfirst.common import container_names as names
from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.live.ssh_access.ssh import AT_ONCE, ssh
from headfirst.control.live.ssh_access.transport import docker_client
from headfirst.control.live.ssh_access.tunnel import forward
from headfirst.control.live.status import container_fields
from headfirst.control.live.status_types import RoutedReplica, RouterStatus
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.node.supervisor.registration import RouterApi, Worker, can_answer


def router_status(
    cluster: Cluster, services: Sequence[Service], secrets: Secrets | None
) -> list[RouterStatus]:
    """The routers of these services. A host that does not answer is a row with its problem."""
    access, key = host_access(cluster), secrets.router_key if secrets else None
    targets = [
        (service, router.url, access[router.host.name], key)
        for service in services
        for router in service.routers
    ]
    with ThreadPoolExecutor(max_workers=max(1, min(len(targets), AT_ONCE))) as pool:
        return list(pool.map(lambda target: _ask(*target), targets))


def _ask(service: Service, url: str, access: HostAccess, key: str | None) -> RouterStatus:
    about: dict[str, Any] = {"service": str(service), "url": url}
    try:
        with ssh(access) as connection, docker_client(access, connection) as client:
            row = container_fields(client, access.host, names.router(service.name))
            if row["state"] != "running" or key is None:
                return RouterStatus(**about, **row, ready=False)
            try:
                with forward(connection, url) as local:
                    workers = RouterApi(local, key).workers()
            except NotReadyError as error:
                return RouterStatus(**about, **{**row, "problem": error.what}, ready=False)
            replicas = _replicas(service, workers)
            roles = [worker.role for worker in workers if worker.status == "ready"]
            ready = can_answer(roles) and all(replica.state == "ready" for replica in replicas)
            return RouterStatus(**about, **row, ready=ready, replicas=replicas)
    except (NotReadyError, UntrustedError) as error:
        return RouterStatus(**about, host=access.host, state="unreachable", problem=error.what, ready=False)


def _replicas(service: Service, workers: Sequence[Worker]) -> list[RoutedReplica]:
    listed = {worker.url: worker for worker in workers}
    replicas = []
    for replica in service.replicas:
        worker = listed.get(replica.url)
        replicas.append(
            RoutedReplica(url=worker.url, state=worker.status, requests=worker.requests)
            if worker
            else RoutedReplica(url=replica.url, state="missing")
        )
    return replicas
