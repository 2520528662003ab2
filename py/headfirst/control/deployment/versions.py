"""The versions of a service that its hosts have: which one a rollback returns to.

A version is one generation of each replica; the collection's plugin_utils/service_change.py decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils import service_change

from headfirst.common.untrusted import UntrustedError
from headfirst.decide.cluster.types import Service


@dataclass(frozen=True)
class Version:
    """A version of a service: its name, when it served (seconds since 1970), its generation by container."""

    name: str
    served_at: float
    generations: Mapping[str, str]


def previous(service: Service, stats: Mapping[str, Any]) -> Version | None:
    """The version that served before the present one on all replicas; None where there is none.

    `stats` is what `playbooks/versions.yml` published, by host. UntrustedError: a host cannot have it.
    """
    ranks = [rank for host in service.hosts for rank in _ranks(stats.get(host.name, []), host.name)]
    found = service_change.by_replica(ranks)
    replicas = {name: found.get(name, []) for name in map(service.container, service.replicas)}
    before = service_change.previous(replicas)
    if not before["version"]:
        return None
    return Version(before["version"], before["served_at"], before["generations"])


def _ranks(document: Any, host: str) -> list[dict[str, Any]]:
    try:
        return service_change.published(document, host)
    except ValueError as error:
        raise UntrustedError(f"its generations are refused: {error}", where=host) from None
