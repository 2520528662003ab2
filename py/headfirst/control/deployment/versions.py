"""The versions of a service that its hosts have: which one a rollback returns to.

A version is one generation of each replica; the collection's plugin_utils/service_change.py decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from ansible_collections.headfirst.serving.plugins.plugin_utils import service_change
from pydantic import BaseModel, ConfigDict, Field

from headfirst.decide.cluster.types import Service
from headfirst.decide.untrusted_model import validated

# Names become variables of a play, which Ansible reads as templates.
_Name = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_MaybeName = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_-]{0,64}$")]
_Container = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
_Time = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
_Rank = Annotated[int, Field(strict=True, ge=0, le=100_000)]


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Times(_Document):
    planned_at: _Time = 0
    served_at: _Time = 0
    returned: bool = False


class _Generation(_Document):
    worked_at: _Time
    rank: _Rank
    ranks: _Rank
    versions: Annotated[dict[_Name, _Times], Field(max_length=1000)] = {}


class _Current(_Document):
    generation: _MaybeName
    running: bool


class _Seen(_Document):
    current: _Current
    generations: Annotated[dict[_Name, _Generation], Field(max_length=1000)]


class _State(_Document):
    replica: _Container
    rank: _Rank
    seen: _Seen


class _Host(_Document):
    ranks: Annotated[tuple[_State, ...], Field(max_length=1000)]


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
    ranks = [
        {**state.model_dump(), "host": host.name}
        for host in service.hosts
        for state in validated(
            _Host, {"ranks": stats.get(host.name, ())}, what="its generations", where=host.name
        ).ranks
    ]
    found = service_change.by_replica(ranks)
    replicas = {name: found.get(name, []) for name in map(service.container, service.replicas)}
    before = service_change.previous(replicas)
    if not before["version"]:
        return None
    return Version(before["version"], before["served_at"], before["generations"])
