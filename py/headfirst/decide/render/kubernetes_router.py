"""Kubernetes: the router of a service with prefill and decode replicas, as a Deployment."""

from __future__ import annotations

from typing import Any

from headfirst.decide.containers.blanks import ADDRESS, filled, head_address_of
from headfirst.decide.plan.front.router import READY_PATH, SHUTDOWN_S, scheduled_command
from headfirst.decide.plan.types import PlannedService
from headfirst.decide.render import scheduled_options, secret_files
from headfirst.decide.render.kubernetes_objects import (
    labels_of,
    leader_address,
    pod_options,
    router_name,
    security,
)

# Fields of Container that the Deployment carries out.
_CARRIED = {"name", "image", "entrypoint", "command", "env_file", "cap_add", "cap_drop", "init"}
_GIVEN = {"restart_policy": "unless-stopped"}
_PROBE = {"periodSeconds": 5, "timeoutSeconds": 5}


def about(service: PlannedService) -> list[str]:
    """How the Secret is made, and options that the pods do not have."""
    lines: list[str] = []
    for router in service.required_routers[:1]:
        path = f"{secret_files.FOLDER}/{secret_files.of_env_file(router).name}"
        lines.append(f"  kubectl create secret generic {router_name(router)} --from-env-file={path}")
        lines += scheduled_options.stated(router.container.without_files(), _CARRIED, _GIVEN, "Kubernetes")
    return lines


def deployment(service: PlannedService) -> dict[str, Any]:
    """As many routers as the plan has; each has all replicas by the names of their leaders."""
    router, *_ = service.required_routers
    planned, name = router.container, router_name(router)
    addresses = {head_address_of(replica.index): leader_address(replica) for replica in service.replicas}
    addresses[ADDRESS] = "0.0.0.0"  # noqa: S104 - the pod has a network of its own
    container: dict[str, Any] = {
        "name": "router",
        "image": planned.image,
        "command": [planned.entrypoint],
        "args": [filled(word, addresses) for word in scheduled_command(router, service.replicas)],
        "env": [
            {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": variable}}}
            for variable in router.env_file
        ],
        "ports": [
            {"name": "api", "containerPort": router.port},
            {"name": "metrics", "containerPort": router.metrics_port},
        ],
        "securityContext": security(planned),
        "readinessProbe": {"httpGet": {"path": READY_PATH, "port": "api"}, **_PROBE},
        "livenessProbe": {"httpGet": {"path": "/health", "port": "api"}, **_PROBE, "failureThreshold": 12},
    }
    spec = {
        "terminationGracePeriodSeconds": SHUTDOWN_S + 10,
        **pod_options(planned),
        "containers": [container],
    }
    labels = labels_of(service, name)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": len(service.required_routers),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
