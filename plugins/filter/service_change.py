"""Filters that decide which generation of a service runs; see plugin_utils/service_change.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.headfirst.serving.plugins.plugin_utils import node_answer, service_change
from ansible_collections.headfirst.serving.plugins.plugin_utils.service_change import Ranks

# A generation becomes a container's name, a file's name and an argument on all hosts.
_GENERATION = re.compile(r"(standby-)?[0-9a-f]{12}")
_CURRENT = {"generation": "str", "running": "bool"}
_TIMES = {
    **{name: {"type": "float", "required": False} for name in ("planned_at", "served_at")},
    "returned": {"type": "bool", "required": False},
}
_VERSIONS = {"type": "dict", "required": False, "elements": {"type": "dict", "options": _TIMES}}
_ENTRY = {"worked_at": "float", "rank": "int", "ranks": "int", "versions": _VERSIONS}


class FilterModule:
    """The filters of this file, by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {
            "service_change": change,
            "service_rollback": rollback,
            "service_ranks": host_ranks,
            "service_kept": kept,
        }


def change(ranks: Ranks, replicas: int = 1, standbys: Sequence[str] = ()) -> dict[str, Any]:
    """See service_change.change."""
    return service_change.change(_proven(ranks), replicas, standbys)


def rollback(ranks: Ranks, target: str = "", replicas: int = 1) -> dict[str, Any]:
    """See service_change.rollback."""
    return service_change.rollback(_proven(ranks), target, replicas)


def host_ranks(results: Sequence[dict[str, Any]], host: str) -> Ranks:
    """See service_change.host_ranks."""
    return _proven(service_change.host_ranks(results, host))


def kept(all_ranks: Ranks) -> dict[str, list[str]]:
    """See service_change.kept."""
    return service_change.kept(_proven(all_ranks))


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
        node_answer.named({name: entry[name] for name in _ENTRY if name in entry}, _ENTRY)
