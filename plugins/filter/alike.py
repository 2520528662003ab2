"""Filters that find the hosts that have the same thing; see plugin_utils/alike.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils import alike


class FilterModule:
    """The filters of this file, by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {"first_alike": alike.first_alike, "file_differences": alike.differences}
