"""Which hosts of a cluster `--limit` names, as Ansible reads the pattern."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from headfirst.cluster.types import Cluster, Host
from headfirst.deployment.options import RunOptions
from headfirst.errors import InputError


def limited_hosts(cluster: Cluster, options: RunOptions) -> tuple[Host, ...]:
    """The hosts that a run with these options acts on, the head first where it is one of them."""
    if options.limit is None:
        return cluster.hosts
    command = [str(Path(sys.executable).parent / "ansible-inventory"), "--list", "--limit", options.limit]
    for path in cluster.inventories:
        command += ["-i", str(path)]
    for item in options.extra_vars:
        command += ["-e", item]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | {"ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8"},
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise InputError(f"--limit {options.limit}: {lines[-1] if lines else 'Ansible rejects the pattern'}")
    groups = json.loads(done.stdout)
    named = {name for group in groups.values() for name in group.get("hosts", [])}
    found = tuple(host for host in cluster.hosts if host.name in named)
    if not found:
        names = ", ".join(host.name for host in cluster.hosts)
        raise InputError(f"--limit {options.limit} names no host of the cluster", hint=f"Hosts: {names}.")
    return found
