"""A filter about what hosts report of their addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.headfirst.serving.plugins.plugin_utils import node_answer

_SOURCES = {"sources": {"type": "dict", "elements": {"type": "str", "max": 45}}}


def connecting_addresses(reported: Mapping[str, Any], target: str) -> list[str]:
    """The address from which each host connects to `target`; what is no address becomes part of no rule."""
    addresses = []
    for host, sources in reported.items():
        try:
            values = node_answer.named({"sources": sources}, _SOURCES)["sources"]
            if target in values:
                addresses.append(_address(values[target]))
        except ValueError as error:
            raise AnsibleFilterError(f"The addresses that {host} reports are refused: {error}.") from None
    return addresses


def _address(text: str) -> str:
    if "%" in text:  # ipaddress takes any text as the zone behind it
        raise ValueError(f"{node_answer.quoted(text)} has a zone")
    return str(ipaddress.ip_address(text))


class FilterModule:
    """The filters of this file, by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {"connecting_addresses": connecting_addresses}
