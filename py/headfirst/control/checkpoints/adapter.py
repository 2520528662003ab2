"""The rank of a LoRA adapter, from its adapter_config.json: in a folder on this machine, or on its hub."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.untrusted import integer
from headfirst.control.checkpoints.folder import read_json
from headfirst.control.checkpoints.offline import is_offline

if TYPE_CHECKING:
    import httpx

CONFIG = "adapter_config.json"
_HIGHEST = 1 << 16


def rank(
    id: str,
    source: str,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    transport: httpx.BaseTransport | None = None,
) -> int | None:
    """The largest rank of the adapter's matrices. `source` is modelscope, huggingface or path.

    Where the hub does not answer, or HF_HUB_OFFLINE=1 forbids requests, what it sent for an earlier plan is
    used; None without that, or where the folder is not on this machine (`folder`: its place here). Raises
    InputError for an adapter that has no such file.
    """
    if source == "path":
        place = folder or Path(id)
        if not place.is_dir():
            return None
        return _largest(
            read_json(place / CONFIG, missing="Engines read an adapter's rank from it."), str(place)
        )
    from headfirst.control.checkpoints.hub import hub_json, stored_json
    from headfirst.control.checkpoints.hub_requests import Hub

    hub = Hub.of(source, environment)
    try:
        config = None if is_offline(environment) else hub_json(hub, id, CONFIG, transport=transport)
    except NotReadyError:
        config = None
    config = config or stored_json(hub, id, CONFIG)
    return _largest(config, id) if config else None  # None: the plan states that the rank is not known


def _largest(config: Mapping[str, Any], where: str) -> int:
    """PEFT's `r`, and the ranks that rank_pattern sets for parts of the model."""
    pattern = config.get("rank_pattern") or {}
    if "r" not in config or not isinstance(pattern, dict):
        raise InputError(
            f"{CONFIG} has no usable rank.", where=where, hint="Give an adapter in PEFT's format."
        )
    ranks = [config["r"], *pattern.values()]
    return max(integer(value, what="the rank", where=where, low=1, high=_HIGHEST) for value in ranks)
