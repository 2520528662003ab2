"""The plan as a second Ansible inventory: what the user's own file says, plus what was decided."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from headfirst.cluster.types import Cluster
from headfirst.lab.types import LabAccess


def write(
    path: Path, cluster: Cluster, role_vars: dict[str, dict[str, Any]], access: LabAccess | None
) -> None:
    """Write the inventory with mode 0600: it carries secrets, for the length of a run."""
    hosts = {name: dict(variables) for name, variables in role_vars.items()}
    if access:
        for host in cluster.lab_hosts:
            hosts[host.name] |= _lab_login(access)
    groups: dict[str, Any] = {
        "head": {"hosts": {cluster.head.name: {}}},
        "workers": {"hosts": {host.name: {} for host in cluster.workers}},
        "webui": {"hosts": {cluster.webui.name: {}}},
    }
    text = yaml.safe_dump({"all": {"hosts": hosts, "children": groups}}, sort_keys=False, width=4096)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def _lab_login(access: LabAccess) -> dict[str, Any]:
    return {
        "ansible_user": access.user,
        "ansible_ssh_private_key_file": str(access.private_key),
        # The lab's keys are its own: the user's known_hosts and agent stay out of it.
        "ansible_ssh_common_args": (
            f"-o UserKnownHostsFile={access.known_hosts} -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes"
        ),
    }
