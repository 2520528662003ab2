"""Filters: which hosts have the same thing, and which of them acts for the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils.weights_choice import differences, first_alike


class FilterModule:
    """The filters of this file, by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {"first_alike": first_alike, "file_differences": differences}
