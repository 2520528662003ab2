"""The running service of a cluster: looked at, followed, asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headfirst.cluster.types import Cluster
from headfirst.deployment.access import host_access
from headfirst.deployment.claim import current_credentials, known_credentials
from headfirst.errors import InputError, NotReadyError
from headfirst.live.access import HostAccess
from headfirst.live.chat import Chat
from headfirst.live.logs import LogLine
from headfirst.live.status import WebuiTarget, cluster_status
from headfirst.live.status_types import ClusterStatus
from headfirst.live.tunnel import tunnel
from headfirst.run.scrub import Scrubber


def status(cluster: Cluster) -> ClusterStatus:
    """Every rank's container, the engine and the chat page, asked in parallel."""
    access, secrets = host_access(cluster), known_credentials(cluster)
    return cluster_status(
        [access[host.name] for host in cluster.ranks],
        engine_url=cluster.engine_url,
        api_key=secrets.engine_api_key if secrets else None,
        webui=WebuiTarget(access[cluster.webui.name], cluster.webui_url),
    )


def rank_access(cluster: Cluster, host: str | None) -> dict[int, HostAccess]:
    """Access by rank: of all ranks, or of the one on the host named so (or of the rank with that number)."""
    access = {rank: host_access(cluster)[node.name] for rank, node in enumerate(cluster.ranks)}
    if host is None:
        return access
    found = {rank: login for rank, login in access.items() if host in (login.host, str(rank))}
    if not found:
        names = ", ".join(f"{rank} ({login.host})" for rank, login in access.items())
        raise InputError(f"no rank on {host}", hint=f"Ranks: {names}.")
    return found


def without_secrets(cluster: Cluster, lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """The lines with the API key masked: SGLang logs all its arguments when it starts."""
    secrets = known_credentials(cluster)
    scrubber = Scrubber(secrets.values() if secrets else ())
    for line in lines:
        yield line._replace(text=scrubber.text(line.text))


@contextmanager
def open_chat(cluster: Cluster, system: str | None) -> Iterator[Chat]:
    """A conversation with the model, through an SSH tunnel to the head."""
    secrets = current_credentials(cluster)
    if secrets is None:
        raise NotReadyError(
            f"cluster {cluster.name} has no API key, neither here nor on its head",
            where=cluster.head.name,
            hint=f"Bring it up: deploy up {cluster.inventories[0]}",
        )
    with (
        tunnel(host_access(cluster)[cluster.head.name], cluster.engine_url) as url,
        Chat(url, cluster.served_model_name, secrets.engine_api_key, system) as chat,
    ):
        yield chat
