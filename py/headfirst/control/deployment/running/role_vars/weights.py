"""Variables of the roles that bring what the ranks need: node_tools, engine_image, weights."""

from __future__ import annotations

from typing import Any

from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.hosts.hub_access import hub_environment, hub_token
from headfirst.control.deployment.lab_nodes import shared_demo
from headfirst.control.deployment.running.artifacts import Artifacts, image_source
from headfirst.control.deployment.running.role_vars import HostVars
from headfirst.decide.cluster.settings import HUBS
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.plan.types import Adapter, Plan, Service


def tools_vars(cluster: Cluster, plan: Plan, files: Artifacts) -> HostVars:
    """Variables per host for the stage `tools`."""
    return {host.name: _node_tools(cluster, plan, host, files) for host in cluster.nodes}


def service_vars(cluster: Cluster, service: Service, secrets: Secrets, files: Artifacts) -> HostVars:
    """Variables per host for the stages `image` and `weights` of one service."""
    members = _holders(cluster, service)
    image = {
        "engine_image_name": service.replicas[0].nodes[0].container.image,
        **image_source("engine_image", files.engines[service.name]),
    }
    return {host.name: image | _weights(cluster, service, members, host, secrets) for host in members}


def adapter_vars(cluster: Cluster, service: Service, adapter: Adapter, secrets: Secrets) -> HostVars:
    """Variables per host for the stage `weights` of a LoRA adapter of a service."""
    folder, _, name = adapter.directory.rpartition("/")
    members = _holders(cluster, service)
    own = {
        "weights_model": adapter.id,
        "weights_source": adapter.source,
        "weights_revision": "",
        "weights_dir": folder,
        "weights_shared": "stage",
        "weights_name": name,
        "weights_convert_to_bf16": False,
        "weights_keep_fp8": False,
    }
    return {
        host.name: _weights(cluster, service, members, host, secrets)
        | own
        | {"weights_hub_token": hub_token(adapter.source) if host.name == members[0].name else ""}
        for host in members
    }


def _node_tools(cluster: Cluster, plan: Plan, host: Host, files: Artifacts) -> dict[str, Any]:
    # Only a host that fetches needs the hub's client.
    hubs = {
        source: None
        for service in plan.services
        for source in (service.weights.source, *(adapter.source for adapter in service.adapters))
        if source in HUBS and host.name in [member.name for member in _fetchers(cluster, service)]
    }
    rdma = any(service.weights.carrier.ports.get(host.name) for service in plan.services)
    return {
        "node_tools_wheel": str(files.node_wheel),
        "node_tools_extras": [*hubs, *(["rdma"] if rdma else [])],
    }


def _weights_address(host: Host) -> str:
    return ",".join(host.weights_addresses or [host.address])


def _holders(cluster: Cluster, service: Service) -> tuple[Host, ...]:
    """Hosts that have the image and the weights of a service."""
    return (*cluster.service(service.name).hosts, *cluster.spares)


def _fetchers(cluster: Cluster, service: Service) -> tuple[Host, ...]:
    hosts = _holders(cluster, service)
    return hosts[:1] if service.weights.fetch == "head" else hosts


def _weights(
    cluster: Cluster, service: Service, members: tuple[Host, ...], host: Host, secrets: Secrets
) -> dict[str, Any]:
    demo = service.weights.source == "demo"
    fetches = service.weights.fetch != "head" or host.name == members[0].name
    layers = {share.host: share.layers for share in service.weights.shares}
    if layers:  # a spare may become any rank
        layers |= {host.name: f"0-{service.weights.hidden_layers - 1}" for host in cluster.spares}
    return {
        "weights_model": str(shared_demo(service.weights.model)) if demo else service.weights.model,
        "weights_source": "path" if demo else service.weights.source,
        "weights_revision": service.weights.revision or "",
        "weights_dir": cluster.service(service.name).settings.weights_dir,
        "weights_shared": "stage" if demo else cluster.service(service.name).settings.weights_shared,
        "weights_name": service.weights.directory.rpartition("/")[2],
        "weights_convert_to_bf16": service.convert_to_bf16,
        "weights_keep_fp8": service.weights.keep_fp8,
        "weights_address": _weights_address(host),
        "weights_members": [_weights_address(member) for member in members],
        "weights_hidden_layers": service.weights.hidden_layers,
        "weights_layers": {_weights_address(member): layers[member.name] for member in members if layers},
        "weights_connections": service.weights.connections,
        "weights_fetch": service.weights.fetch,
        "weights_encrypt": service.weights.encrypt,
        "weights_rdma": service.weights.carrier.ports.get(host.name, []),
        "weights_token": secrets.weights_token,
        "weights_hub_token": hub_token(service.weights.source) if fetches else "",
        "weights_environment": hub_environment(),
    }
