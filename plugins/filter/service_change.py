"""Filters that decide which generation of a service runs; see plugin_utils/service_change.py."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.headfirst.serving.plugins.plugin_utils import node_answer, service_change
from ansible_collections.headfirst.serving.plugins.plugin_utils.service_change import Ranks

# A generation becomes a container's name, a file's name and an argument on all hosts.
_GENERATION = re.compile(r"(standby-)?[0-9a-f]{12}")
_CURRENT = {"generation": "str", "running": "bool"}
_ENTRY = {"worked_at": "float", "ranks": "int"}


class FilterModule:
    """The filters of this file, by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {"service_change": change, "service_rollback": rollback}


def change(ranks: Ranks) -> dict[str, Any]:
    """See service_change.change."""
    return service_change.change(_proven(ranks))


def rollback(ranks: Ranks) -> dict[str, Any]:
    """See service_change.rollback."""
    return service_change.rollback(_proven(ranks))


def _proven(ranks: Ranks) -> Ranks:
    """The ranks; AnsibleFilterError where a host reports what module container_generations does not."""
    for rank in ranks:
        try:
            _check(rank["seen"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise AnsibleFilterError(f"The generations of {rank['host']} are refused: {error}.") from None
    return ranks


def _check(seen: dict[str, Any]) -> None:
    current = node_answer.named({name: seen["current"][name] for name in _CURRENT}, _CURRENT)
    names = [current["generation"]] if current["generation"] else []
    for name in [*names, *seen["generations"]]:
        if not _GENERATION.fullmatch(name):
            raise ValueError(f"{node_answer.quoted(name)} is no generation")
    for entry in seen["generations"].values():
        node_answer.named({name: entry[name] for name in _ENTRY}, _ENTRY)
