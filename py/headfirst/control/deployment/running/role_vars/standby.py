"""What waits on the hosts of a replica and on the spares for a takeover, as variables of role `engine`."""

from __future__ import annotations

from typing import Any

import yaml

from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.role_vars.engine import (
    engine_vars,
    standby_generations,
    supervision,
)
from headfirst.control.deployment.running.role_vars.host_vars import HostVars
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.types import Node, Replica, Service, Standby

# An engine that lost a rank has ended, or was found hanging, before a spare takes over.
_BEYOND_HANG_S = 60


def standby_vars(cluster: Cluster, service: Service, replica: Replica, secrets: Secrets) -> HostVars:
    """Variables per host for `playbooks/standby.yml`: one replica's hosts, and the spares."""
    settings = cluster.service(service.name).settings
    spares = [host.name for host in cluster.spares]
    found: HostVars = {
        host: {
            "engine_name": replica.nodes[0].container.name,
            "engine_is_spare": host in spares,
            "engine_standbys": [],
        }
        for host in (*(node.host for node in replica.nodes), *spares)
    }
    for generation, one in standby_generations(service, replica).items():
        for node in one.replica.nodes:
            waits = _waits(settings, service, replica, one, node, secrets)
            found[node.host]["engine_standbys"].append({"generation": generation, **waits})
    return found


def _waits(
    settings: ServiceSettings,
    service: Service,
    replica: Replica,
    one: Standby,
    node: Node,
    secrets: Secrets,
) -> dict[str, Any]:
    """One host's part of a generation that waits."""
    rank = engine_vars(service, one.replica, node, secrets)
    config = rank["engine_config"]
    return {
        "rank": node.rank,
        "ranks": len(one.replica.nodes),
        "container": rank["engine_container"],
        "record": {
            "url": rank["engine_url"],
            "model": rank["engine_model_name"],
            "api_key": rank["engine_api_key"],
            "readiness": rank["engine_readiness"],
            "files": {rank["engine_config_path"]: _yaml(config)} if config else {},
            "supervision": supervision(settings, service, one.replica, secrets)
            | {
                "standby": {
                    "spare": one.address,
                    "replaces": one.replaces,
                    "instead_of": [other.address for other in replica.nodes],
                    "instead_of_url": replica.engine_url,
                    "after_seconds": settings.hang_timeout + _BEYOND_HANG_S,
                }
            },
        },
    }


def _yaml(config: dict[str, Any]) -> str:
    return yaml.safe_dump(config)
