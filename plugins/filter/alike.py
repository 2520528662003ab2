"""Filters: which hosts have the same thing, and which of them acts for the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def first_alike(values: Mapping[str, str]) -> dict[str, str]:
    """For each host the first one with the same value; "" is a value that is not known, and like no other."""
    first: dict[str, str] = {}
    return {host: first.setdefault(value, host) if value else host for host, value in values.items()}


def differences(files: Mapping[str, str], right: Mapping[str, str]) -> list[str]:
    """A reason for each file (name to hash) in which a host differs from the one that is right."""
    missing = [f"{name} is missing" for name in right if name not in files]
    other = [f"{name} has other content" for name in right if files.get(name, right[name]) != right[name]]
    return sorted(missing + other + [f"{name} is not on the head" for name in files if name not in right])


class FilterModule:
    """The filters of this file, by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {"first_alike": first_alike, "file_differences": differences}
