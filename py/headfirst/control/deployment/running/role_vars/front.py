"""What people reach, as variables of roles: the routers, the chat page and the proxy."""

from __future__ import annotations

from typing import Any

from headfirst.common import container_names as names
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.certificate import certificate_of
from headfirst.control.deployment.running.artifacts import image_source
from headfirst.control.deployment.running.role_vars import HostVars, Up
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.plan.front.proxy import service_name
from headfirst.decide.plan.front.webui import chats
from headfirst.decide.plan.types import Plan, PlannedService


def router_vars(up: Up, service: PlannedService) -> HostVars:
    """Variables per host for `playbooks/router.yml`: the routers of one service."""
    planned = _planned(up.cluster)
    return {
        router.host: {
            "router_name": router.container.name,
            "router_container": router.container.module_spec(),
            "router_url": router.url,
            "router_api_key": up.secrets.api_key(service.name),
            "router_admin_key": up.secrets.router_key,
            "router_planned": planned[router.host],
            "router_is_last": planned[router.host][-1] == router.container.name,
            **image_source(up.files.images.get(router.container.image), "headfirst_planned_router_image_"),
        }
        for router in service.routers
    }


def deregister_vars(up: Up, service: PlannedService) -> HostVars:
    """Variables per host for `playbooks/deregister.yml`."""
    replicas = [replica.engine_url for replica in service.replicas]
    return {
        router.host: {
            "headfirst_deregister_url": router.url,
            "headfirst_deregister_replicas": replicas,
            "headfirst_deregister_admin_key": up.secrets.router_key,
        }
        for router in service.routers
    }


def router_stop_vars(service: Service) -> HostVars:
    """Variables per host for `playbooks/stop_router.yml`: stopping needs no plan."""
    return {router.host.name: {"router_name": names.router(service.name)} for router in service.routers}


def _planned(cluster: Cluster) -> dict[str, list[str]]:
    """Names of the routers' containers that each host is to have."""
    containers: dict[str, list[str]] = {}
    for service in cluster.services:
        for router in service.routers:
            containers.setdefault(router.host.name, []).append(names.router(service.name))
    return containers


def webui_vars(up: Up) -> HostVars:
    """Variables for `playbooks/webui.yml`; none where no service answers chats.

    The page offers every service, and is proven with one that the run brings.
    """
    plan, secrets, brought = up.plan, up.secrets, chats(up.services)
    if plan.webui is None or not brought:
        return {}
    answering = chats(plan.services)
    keys = [secrets.api_key(service.name) for service in answering for _ in service.urls]
    return {
        plan.webui.host: {
            "open_webui_name": plan.webui.container.name,
            "open_webui_container": plan.webui.container.module_spec(),
            **image_source(up.files.images.get(plan.webui.container.image), "headfirst_planned_webui_image_"),
            "open_webui_url": plan.webui.url,
            # Open WebUI takes a key for each address of its list.
            "open_webui_engine_api_key": ";".join(keys),
            "open_webui_model_name": brought[0].served_model_name,
            "open_webui_admin_email": secrets.webui_admin_email,
            "open_webui_admin_password": secrets.webui_admin_password,
            "open_webui_admin_password_before": secrets.webui_admin_password_before or "",
            "open_webui_secret_key": secrets.webui_secret_key,
            "open_webui_secret_env": plan.webui.secret_env,
        }
    }


def proxy_vars(up: Up) -> HostVars:
    """Variables for `playbooks/proxy.yml`; none where there is no proxy."""
    proxy = up.plan.proxy
    if proxy is None:
        return {}
    presented = certificate_of(up.cluster, up.secrets)
    return {
        proxy.host: {
            "proxy_name": proxy.container.name,
            "proxy_container": proxy.container.module_spec(),
            "proxy_addresses": proxy.addresses,
            "proxy_port": proxy.port,
            "proxy_certificate": presented.certificate,
            "proxy_certificate_key": presented.key,
            "proxy_certificate_ends": presented.ends,
            "proxy_services": [service.model_dump() for service in proxy.services],
            "proxy_service_api_keys": {
                service_name(service.name): up.secrets.api_key(service.name) for service in up.plan.services
            },
            "proxy_page": proxy.page,
            "proxy_metrics_address": proxy.metrics_address,
            "proxy_metrics_port": proxy.metrics_port,
            **image_source(up.files.images.get(proxy.container.image), "headfirst_planned_proxy_image_"),
        }
        | _keys(up.secrets)
    }


def keys_vars(cluster: Cluster, secrets: Secrets) -> HostVars:
    """Variables for `playbooks/keys.yml`."""
    return {cluster.webui.name: _keys(secrets)}


def page_stop_vars(cluster: Cluster) -> HostVars:
    """Variables for `playbooks/stop_page.yml`."""
    return {cluster.webui.name: {"open_webui_name": names.WEBUI, "proxy_name": names.PROXY}}


def closed_ports(plan: Plan, host: str) -> list[str]:
    """Ports of a host that only the hosts of the cluster reach, since people come through the proxy."""
    return [str(port) for port in plan.proxy.closed_ports.get(host, [])] if plan.proxy else []


def _keys(secrets: Secrets) -> dict[str, Any]:
    return {
        "proxy_keys": [
            {
                "name": name,
                "sha256": key.sha256,
                "service": key.service or "",
                "requests_per_minute": key.requests_per_minute or 0,
            }
            for name, key in sorted(secrets.named_keys.items())
        ]
    }
