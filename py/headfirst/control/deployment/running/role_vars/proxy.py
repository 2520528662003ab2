"""The proxy's part of the plan as variables of its role."""

from __future__ import annotations

from typing import Any

from headfirst.common import container_names as names
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.certificate import certificate_of
from headfirst.control.deployment.running.artifacts import Artifacts, image_source
from headfirst.control.deployment.running.role_vars.host_vars import HostVars
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.proxy import service_name
from headfirst.decide.plan.types import Plan


def proxy_vars(cluster: Cluster, plan: Plan, secrets: Secrets, files: Artifacts) -> HostVars:
    """Variables for `playbooks/proxy.yml`; none where there is no proxy."""
    if plan.proxy is None:
        return {}
    proxy, presented = plan.proxy, certificate_of(cluster, secrets)
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
                service_name(service.name): secrets.api_key(service.name) for service in plan.services
            },
            "proxy_page": proxy.page,
            "proxy_metrics_address": proxy.metrics_address,
            "proxy_metrics_port": proxy.metrics_port,
            **image_source("headfirst_proxy_image", files.proxy),
        }
        | _keys(secrets)
    }


def keys_vars(cluster: Cluster, secrets: Secrets) -> HostVars:
    """Variables for `playbooks/keys.yml`."""
    return {cluster.webui.name: _keys(secrets)}


def proxy_stop_vars(cluster: Cluster) -> HostVars:
    """Variables for `playbooks/stop_proxy.yml`."""
    return {cluster.webui.name: {"proxy_name": names.PROXY}}


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
