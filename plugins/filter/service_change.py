"""Filters on the versions of a service; see plugin_utils/service_change.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.headfirst.serving.plugins.plugin_utils import service_change
from ansible_collections.headfirst.serving.plugins.plugin_utils.service_change import Ranks


class FilterModule:
    """The filters of this file, by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {
            "service_ranks": host_ranks,
            "service_kept": kept,
        }


def host_ranks(results: Sequence[dict[str, Any]], host: str) -> Ranks:
    """See service_change.host_ranks."""
    return _proven(service_change.host_ranks(results, host))


def kept(all_ranks: Ranks) -> dict[str, list[str]]:
    """See service_change.kept."""
    return service_change.kept(_proven(all_ranks))


def _proven(ranks: Ranks) -> Ranks:
    """See service_change.checked."""
    try:
        return service_change.checked(ranks)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from None
