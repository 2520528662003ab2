"""The plan as a second Ansible inventory: what the user's own file states, plus what was decided."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import ScalarNode

from headfirst.control.inventory.login import ASKED
from headfirst.control.run.environment import SSH_ARGS
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.cluster.settings import SETTING_NAMES
from headfirst.decide.cluster.types import Cluster, Host

DEVICE_GROUPS = ("headfirst_gpu", "headfirst_rdma")
HOST_GROUPS = "headfirst_groups"


class _Literal(str):
    """Text that Ansible must never take for a template: interface names and the like come from nodes."""

    __slots__ = ()


class _InventoryDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Every value is written in full."""
        return True


def _tagged(dumper: yaml.SafeDumper, text: _Literal) -> ScalarNode:
    return dumper.represent_scalar("!unsafe", str(text), style='"')


_InventoryDumper.add_representer(_Literal, _tagged)


def write(
    path: Path, cluster: Cluster, role_vars: dict[str, dict[str, Any]], lab: Mapping[str, HostAccess]
) -> None:
    """Write the inventory with mode 0600: it carries secrets, for the length of a run.

    `role_vars` are the variables of each host; its HOST_GROUPS are groups of DEVICE_GROUPS. `lab`: how its
    nodes are reached.
    """
    hosts = {name: dict(variables) for name, variables in role_vars.items()}
    for name, login in lab.items():
        hosts.setdefault(name, {}).update(_lab_login(login))
    groups: dict[str, Any] = {
        "head": {"hosts": {cluster.head.name: {}}},
        "workers": {"hosts": {host.name: {} for host in cluster.nodes if host is not cluster.head}},
        "webui": {"hosts": {cluster.webui.name: {}}},
        "monitoring": {"hosts": {cluster.monitoring.name: {}} if cluster.monitoring else {}},
        "headfirst_proxy": {"hosts": {cluster.webui.name: {}} if cluster.has_proxy else {}},
        "router": {"hosts": {host.name: {} for host in cluster.router_hosts}},
        # Plays about devices go to these, so that other hosts skip no tasks one by one.
        **{name: {"hosts": {}} for name in DEVICE_GROUPS},
    }
    for host in cluster.hosts:
        variables = hosts.setdefault(host.name, {})
        variables.update(_login(host))
        for group in variables.pop(HOST_GROUPS, ()):
            groups[group]["hosts"][host.name] = {}
    literal = {
        name: {key: _literal(value) for key, value in variables.items()} for name, variables in hosts.items()
    }
    # What the user's host_vars/ has of these names would have precedence over this file.
    beside = path.parent / "host_vars"
    beside.mkdir(exist_ok=True)
    for name, variables in literal.items():
        settings = {key: value for key, value in variables.items() if key in SETTING_NAMES}
        if settings and "/" not in name:
            (beside / f"{name}.yml").write_text(yaml.dump(settings, Dumper=_InventoryDumper))
    inventory = {"all": {"hosts": literal, "children": groups}}
    text = yaml.dump(inventory, Dumper=_InventoryDumper, sort_keys=False, width=4096)
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


def _login(host: Host) -> dict[str, Any]:
    """What Ansible cannot read from the user's inventory: typed passwords, our options for ssh."""
    variables: dict[str, Any] = {}
    if host.login.local:
        variables["ansible_connection"] = "headfirst.serving.this_machine"
    if host.login.ssh_args:
        variables["ansible_ssh_args"] = f"{host.login.ssh_args} {SSH_ARGS}"
    if ASKED.login and host.login.password:
        variables["ansible_password"] = host.login.password
    if ASKED.become and host.login.become:
        variables["ansible_become_password"] = host.login.become.password
    return variables


def _lab_login(access: HostAccess) -> dict[str, Any]:
    return {
        "ansible_user": access.user,
        "ansible_ssh_private_key_file": str(access.private_key),
        # The lab's keys are its own: the user's known_hosts and agent stay out of it.
        "ansible_ssh_common_args": (
            f"-o UserKnownHostsFile={access.known_hosts} -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes"
        ),
    }
