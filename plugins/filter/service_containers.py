"""Filters for roles that run one container; see plugin_utils/service_containers.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils import service_containers


class FilterModule:
    """The filters of this file, by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {
            "container_base": lambda role: dict(service_containers.BASES[role]),
            "container_secrets": service_containers.secrets,
        }
