"""Which hosts `--limit` names, as Ansible reads the pattern, and which stages take it."""

from __future__ import annotations

from functools import cache

from headfirst.common.errors import InputError
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.tags import playbook_tags
from headfirst.control.inventory.reading import read
from headfirst.decide.cluster.types import Cluster, Host


def limited_hosts(cluster: Cluster, options: RunOptions) -> tuple[Host, ...]:
    """The hosts that --limit leaves, the head first where it is one of them."""
    if options.limit is None:
        return cluster.hosts
    named = read(cluster.inventories, options.extra_vars, options.limit).limited or []
    return tuple(host for host in cluster.hosts if host.name in named)


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
    return {
        tag
        for name in ("check.yml", "host.yml", "router.yml", "webui.yml", "proxy.yml", "monitoring.yml")
        for tag in playbook_tags(name)
    }
