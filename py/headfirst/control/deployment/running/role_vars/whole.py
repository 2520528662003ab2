"""The plan as variables of the roles: all of a deployment together."""

from __future__ import annotations

from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.control.deployment.running.role_vars.engine import replica_vars, supervisor_vars
from headfirst.control.deployment.running.role_vars.host_vars import HostVars, merged
from headfirst.control.deployment.running.role_vars.hosts import hardware_vars
from headfirst.control.deployment.running.role_vars.proxy import proxy_vars
from headfirst.control.deployment.running.role_vars.webui import webui_vars
from headfirst.control.deployment.running.role_vars.weights import service_vars, tools_vars
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.types import Plan


def role_vars(cluster: Cluster, plan: Plan, secrets: Secrets, files: Artifacts) -> HostVars:
    """All variables per host. They carry secrets: keep them out of logs and off disks that outlive a run.

    Where a host has several ranks, those of the last one: for its stages take service_vars and replica_vars.
    """
    return merged(
        hardware_vars(cluster, plan),
        tools_vars(cluster, plan, files),
        supervisor_vars(cluster, secrets),
        *(service_vars(cluster, service, secrets, files) for service in plan.services),
        *(
            replica_vars(cluster, service, replica, secrets)
            for service in plan.services
            for replica in service.replicas
        ),
        webui_vars(plan, secrets, files),
        proxy_vars(cluster, plan, secrets, files),
    )
