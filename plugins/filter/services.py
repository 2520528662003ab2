"""Filters about services: their containers, and their versions on hosts.

See plugin_utils/service_containers.py and plugin_utils/service_change.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.headfirst.serving.plugins.plugin_utils import service_change, service_containers
from ansible_collections.headfirst.serving.plugins.plugin_utils.service_change import Ranks


class FilterModule:
    """The filters of this file, by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {
            "container_base": lambda role: dict(service_containers.BASES[role]),
            "container_secrets": lambda role, **values: service_containers.SECRETS[role](**values),
            "service_kept": lambda ranks: service_change.kept(_proven(ranks)),
            "service_ranks": host_ranks,
        }


def host_ranks(results: Sequence[dict[str, Any]], host: str) -> Ranks:
    """See service_change.host_ranks."""
    return _proven(service_change.host_ranks(results, host))


def _proven(ranks: Ranks) -> Ranks:
    """See service_change.checked."""
    try:
        return service_change.checked(ranks)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from None
