"""Filters that decide which generation of a service runs; see plugin_utils/service_change.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils import service_change


class FilterModule:
    """The filters of this file, by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {"service_change": service_change.change, "service_rollback": service_change.rollback}
