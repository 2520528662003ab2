"""Whether the environment forbids requests to hubs."""

from __future__ import annotations

from collections.abc import Mapping

OFFLINE = "HF_HUB_OFFLINE"
"""The variable, as huggingface_hub reads it; it counts for both hubs."""


def is_offline(environment: Mapping[str, str]) -> bool:
    """Whether no request may be sent to a hub."""
    return environment.get(OFFLINE, "0").upper() in ("1", "TRUE", "YES", "ON")
