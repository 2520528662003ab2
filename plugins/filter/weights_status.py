"""Filters about what hosts report of their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.headfirst.serving.plugins.plugin_utils import (
    node_answer,
    weights_choice,
    weights_refusals,
)

_STATUS = {
    **dict.fromkeys(("address", "digest", "whole", "pinned"), "str"),
    **dict.fromkeys(("answers", "is_whole", "in_place", "occupied", "leftover"), "bool"),
    **{name: {"type": "str", "required": False} for name in ("asked", "error")},
    "changed": {"type": "list", "elements": "str"},
    "repaired": {"type": "list", "elements": "str", "required": False},
    "files": {"type": "dict", "elements": "str"},
}


def weights_status(printed: str, address: str, is_head: bool) -> dict[str, Any]:
    """What a host's `headfirst-weights status` printed, of this host alone; {} where it printed nothing.

    Only the head reports what is asked for.
    """
    if not printed:
        return {}
    try:
        status = node_answer.named(node_answer.parsed(printed), _STATUS)
        if status["address"] != address:
            raise ValueError(f"it speaks for {node_answer.quoted(status['address'])}")
        if "asked" in status and not is_head:
            raise ValueError("it speaks for the head")
    except ValueError as error:
        raise AnsibleFilterError(f"What {address} reports of its weights is refused: {error}.") from None
    return status


class FilterModule:
    """The filters of this file, by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {
            "weights_status": weights_status,
            "weights_choice": weights_choice.choose,
            "weights_refusals": weights_refusals.refusals,
        }
