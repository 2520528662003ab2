"""What the objects of Kubernetes have alike: names, labels, and how a container is confined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headfirst.decide.containers.spec import Container
from headfirst.decide.plan.types import PlannedReplica, PlannedRouter, PlannedService

_NAME, INSTANCE = "app.kubernetes.io/name", "app.kubernetes.io/instance"


def api_name(service: PlannedService) -> str:
    """The name of what all replicas share."""
    return _plain(f"headfirst-api-{service.name}" if service.name else "headfirst-api")


def replica_name(replica: PlannedReplica) -> str:
    """The name of a replica's set."""
    return _plain(replica.nodes[0].container.name)


def leader_address(replica: PlannedReplica) -> str:
    """The name of rank 0 in DNS: the controller makes a headless Service with the name of the set.

    Pods that are not ready are in it, too (kubernetes-sigs/lws, pkg/utils/controller/controller_utils.go).
    """
    return f"{replica_name(replica)}-0.{replica_name(replica)}"


def router_name(router: PlannedRouter) -> str:
    """The name of a router's Deployment and Secret."""
    return _plain(router.container.name)


def _plain(name: str) -> str:
    return name.replace("_", "-").rstrip("-")


def labels_of(service: PlannedService, instance: str | None = None) -> dict[str, str]:
    """Labels of an object; `instance` is the name of its set or Deployment."""
    labels = {_NAME: api_name(service), "app.kubernetes.io/managed-by": "headfirst"}
    return labels | ({INSTANCE: instance} if instance else {})


def numeric(user: str | None) -> bool:
    """Kubernetes takes ids, not names."""
    return all(part.isdigit() for part in (user or "").split(":"))


def security(planned: Container) -> dict[str, Any]:
    """The `securityContext` of a container."""
    capabilities = {"add": list(planned.cap_add), "drop": list(planned.cap_drop)}
    capabilities = {name: listed for name, listed in capabilities.items() if listed}
    ids = [int(part) for part in planned.user.split(":")] if planned.user and numeric(planned.user) else []
    return {
        "allowPrivilegeEscalation": False,
        **({"capabilities": capabilities} if capabilities else {}),
        **dict(zip(("runAsUser", "runAsGroup"), ids, strict=False)),
    }


def pod_options(planned: Container) -> dict[str, Any]:
    """Options of a pod of any kind."""
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # its variables resemble settings of the programs
        # The pause container is process 1 then, as the init of the plan's container.
        **({"shareProcessNamespace": True} if planned.init else {}),
    }


def endpoint(service: PlannedService, selector: Mapping[str, str]) -> dict[str, Any]:
    """The address of clients: the ports `api` of the pods with these labels that are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": api_name(service), "labels": labels_of(service)},
        "spec": {
            "selector": {_NAME: api_name(service), **selector},
            "ports": [{"name": "api", "port": 80, "targetPort": "api"}],
        },
    }
