"""Which stages take `--limit`."""

from __future__ import annotations

from functools import cache

from headfirst.common.errors import InputError
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.tags import playbook_tags


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
