"""The plan as a second Ansible inventory: what the user's own file states, plus what was decided."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import ScalarNode

from headfirst.control.lab.types import LabAccess
from headfirst.control.run.environment import SSH_ARGS
from headfirst.decide.cluster.asked import ASKED
from headfirst.decide.cluster.types import Cluster, Host


class _Literal(str):
    """Text that Ansible must never take for a template: interface names and the like come from nodes."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Every value is written in full."""
        return True


def _tagged(dumper: yaml.SafeDumper, text: _Literal) -> ScalarNode:
    return dumper.represent_scalar("!unsafe", str(text), style='"')


_Dumper.add_representer(_Literal, _tagged)


def write(
    path: Path, cluster: Cluster, role_vars: dict[str, dict[str, Any]], access: LabAccess | None
) -> None:
    """Write the inventory with mode 0600: it carries secrets, for the length of a run."""
    hosts = {name: dict(variables) for name, variables in role_vars.items()}
    if access:
        for host in cluster.lab_hosts:
            hosts.setdefault(host.name, {}).update(_lab_login(access))
    groups: dict[str, Any] = {
        "head": {"hosts": {cluster.head.name: {}}},
        "workers": {"hosts": {host.name: {} for host in cluster.nodes if host is not cluster.head}},
        "webui": {"hosts": {cluster.webui.name: {}}},
        "monitoring": {"hosts": {cluster.monitoring.name: {}} if cluster.monitoring else {}},
        "headfirst_proxy": {"hosts": {cluster.webui.name: {}} if cluster.has_proxy else {}},
        "router": {"hosts": {host.name: {} for host in cluster.router_hosts}},
        # Plays about devices go to these, so that other hosts skip no tasks one by one.
        "headfirst_gpu": {"hosts": {host.name: {} for host in with_gpus(cluster)}},
        "headfirst_rdma": {"hosts": {host.name: {} for host in with_rdma(cluster)}},
    }
    for host in cluster.hosts:
        hosts.setdefault(host.name, {}).update(_login(host))
    literal = {name: {key: _literal(value) for key, value in own.items()} for name, own in hosts.items()}
    inventory = {"all": {"hosts": literal, "children": groups}}
    text = yaml.dump(inventory, Dumper=_Dumper, sort_keys=False, width=4096)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def _literal(value: Any) -> Any:
    """The value of a variable with each text in it, keys too, marked as no template.

    Only where it could be one: Ansible reads a marked "true", "010" or "" as a boolean, a number or null.
    """
    if isinstance(value, str):
        return _Literal(value) if "{" in value or value.startswith("#jinja2:") else value
    if isinstance(value, dict):
        return {_literal(key): _literal(item) for key, item in value.items()}
    return [_literal(item) for item in value] if isinstance(value, (list, tuple)) else value


def with_gpus(cluster: Cluster) -> tuple[Host, ...]:
    """Hosts whose GPU drivers are ours to install."""
    return on_gpus(cluster) if cluster.settings.drivers == "install" else ()


def with_rdma(cluster: Cluster) -> tuple[Host, ...]:
    """Hosts whose RDMA is ours to set up: ranks on GPUs that exchange data over it."""
    hosts = [host for host in with_gpus(cluster) if meets(cluster, host)]
    return tuple(host for host in hosts if host.hca != "none" and (host.hca or _has_hca(host)))


def on_gpus(cluster: Cluster) -> tuple[Host, ...]:
    """Hosts of services that run on GPUs."""
    own = [service.hosts for service in cluster.services if service.settings.engine_device == "cuda"]
    spares = cluster.spares if own else ()
    return tuple({host.name: host for hosts in (*own, spares) for host in hosts}.values())


def meets(cluster: Cluster, host: Host) -> bool:
    """Whether a replica has, or may have, ranks on this host and on others."""
    replicas = [replica for service in cluster.services for replica in service.replicas]
    meeting = [replica.hosts for replica in replicas if len(replica.hosts) > 1]
    return any(host in (*hosts, *cluster.spares) for hosts in meeting)


def _has_hca(host: Host) -> bool:
    return "rdma" in host.lacks or bool(host.network and host.network.hcas)


def _login(host: Host) -> dict[str, Any]:
    """What Ansible cannot read from the user's inventory: typed passwords, our options for ssh."""
    found: dict[str, Any] = {}
    if host.login.ssh_args:
        found["ansible_ssh_args"] = f"{host.login.ssh_args} {SSH_ARGS}"
    if ASKED.login and host.login.password:
        found["ansible_password"] = host.login.password
    if ASKED.become and host.login.become:
        found["ansible_become_password"] = host.login.become.password
    return found


def _lab_login(access: LabAccess) -> dict[str, Any]:
    return {
        "ansible_user": access.user,
        "ansible_ssh_private_key_file": str(access.private_key),
        # The lab's keys are its own: the user's known_hosts and agent stay out of it.
        "ansible_ssh_common_args": (
            f"-o UserKnownHostsFile={access.known_hosts} -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes"
        ),
    }
