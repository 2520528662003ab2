"""Variables of roles by host: the form in which each part of the plan reaches Ansible."""

from __future__ import annotations

from typing import Any

HostVars = dict[str, dict[str, Any]]


def with_sources(variables: HostVars, sources: HostVars) -> HostVars:
    """The variables of each host, with those of `sources` for it."""
    return {host: values | sources.get(host, {}) for host, values in variables.items()}


def merged(*parts: HostVars) -> HostVars:
    """The variables of each host from all parts together."""
    variables: HostVars = {}
    for part in parts:
        for host, values in part.items():
            variables[host] = variables.get(host, {}) | values
    return variables
