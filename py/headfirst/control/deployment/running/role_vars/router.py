"""The routers of the plan as variables of role `router`."""

from __future__ import annotations

from headfirst.common import container_names as names
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.artifacts import Artifacts, image_source
from headfirst.control.deployment.running.role_vars.host_vars import HostVars
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.cluster.types import Service as ClusterService
from headfirst.decide.plan.types import Service


def router_vars(cluster: Cluster, service: Service, secrets: Secrets, files: Artifacts) -> HostVars:
    """Variables per host for `playbooks/router.yml`: the routers of one service."""
    planned = _planned(cluster)
    return {
        router.host: {
            "router_name": router.container.name,
            "router_container": router.container.module_spec(),
            "router_url": router.url,
            "router_api_key": secrets.api_key(service.name),
            "router_admin_key": secrets.router_key,
            "router_planned": planned[router.host],
            **image_source("headfirst_router_image", files.router),
        }
        for router in service.routers
    }


def deregister_vars(service: Service, secrets: Secrets) -> HostVars:
    """Variables per host for `playbooks/deregister.yml`."""
    replicas = [replica.engine_url for replica in service.replicas]
    return {
        router.host: {
            "headfirst_deregister_url": router.url,
            "headfirst_deregister_replicas": replicas,
            "headfirst_deregister_admin_key": secrets.router_key,
        }
        for router in service.routers
    }


def router_stop_vars(service: ClusterService) -> HostVars:
    """Variables per host for `playbooks/stop_router.yml`: stopping needs no plan."""
    return {router.host.name: {"router_name": names.router(service.name)} for router in service.routers}


def _planned(cluster: Cluster) -> dict[str, list[str]]:
    """Names of the routers' containers that each host is to have."""
    found: dict[str, list[str]] = {}
    for service in cluster.services:
        for router in service.routers:
            found.setdefault(router.host.name, []).append(names.router(service.name))
    return found
