"""Which hosts `--limit` names, as Ansible reads the pattern, and which stages take it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from headfirst.cluster.types import Cluster, Host
from headfirst.deployment.options import RunOptions
from headfirst.deployment.tags import playbook_tags
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


def refuse_limit(options: RunOptions) -> None:
    """Raise InputError where --limit would leave out ranks of a stage that needs all of them."""
    if options.limit is None or (options.tags and set(options.tags) <= _host_tags()):
        return
    together = [tag for tag in options.tags if tag not in _host_tags()]
    what = f"stage {together[0]} acts" if together else "the stages weights and serve act"
    raise InputError(
        f"{what} on all ranks together and takes no --limit",
        hint=f"Prepare the hosts alone: -l {options.limit} -t host. Or run it on all hosts, without --limit.",
    )


@cache
def _host_tags() -> set[str]:
    """Tags of stages that work on each host alone, read from their playbooks."""
    return {tag for name in ("check.yml", "host.yml", "webui.yml") for tag in playbook_tags(name)}
