"""A LoRA adapter's adapter_config.json: of a folder on this machine or on the head, or of its hub."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.untrusted import UntrustedError, integer, line, shown
from headfirst.control.checkpoints.describe import is_offline
from headfirst.control.checkpoints.folder import read_json
from headfirst.decide.model.adapter import AdapterConfig

CONFIG = "adapter_config.json"
_HIGHEST = 1 << 16
_MOST_MODULES = 100_000  # full names of the linear layers of a model with experts


def read_folder(folder: Path) -> AdapterConfig:
    """The adapter in a folder of this machine. InputError where it has no such file, or no rank."""
    return parse(read_json(folder / CONFIG, missing="Engines read an adapter's rank from it."), str(folder))


def read_hub(
    id: str, source: str, *, revision: str | None = None, environment: Mapping[str, str] = os.environ
) -> AdapterConfig | None:
    """The adapter `id` of the hub `source`.

    Where the hub does not answer, or HF_HUB_OFFLINE=1 forbids requests, what it sent for an earlier plan is
    used; None without that.
    """
    from headfirst.control.checkpoints.hub import hub_json, stored_json
    from headfirst.control.checkpoints.hub_requests import Hub

    hub, config = Hub.of(source, environment), None
    if not is_offline(environment):
        with suppress(NotReadyError):
            config = hub_json(hub, id, CONFIG, revision=revision)
    config = config or stored_json(hub, id, CONFIG, revision=revision)
    return parse(config, id) if config else None


def parse(config: Mapping[str, Any], where: str) -> AdapterConfig:
    """PEFT's keys, each of its own type. UntrustedError, or InputError without a rank."""
    pattern = config.get("rank_pattern") or {}
    if "r" not in config or not isinstance(pattern, dict):
        raise InputError(
            f"{CONFIG} has no usable rank.",
            where=where,
            hint="Give a LoRA adapter in PEFT's format.",
        )
    rank = _rank(config["r"], where)
    targets = "" if config.get("target_modules", ()) is None else config.get("target_modules", ())
    ranks = {_rank(value, where) for value in pattern.values()}
    return AdapterConfig(
        rank=rank,
        largest_rank=max({rank, *ranks}),
        targets=_text(targets, "target_modules", where)
        if isinstance(targets, str)
        else _names(targets, "target_modules", where),
    )


def _rank(value: object, where: str) -> int:
    return integer(value, what="the rank", where=where, low=1, high=_HIGHEST)


def _text(value: object, name: str, where: str) -> str:
    return line(value, what=f"{name} in {CONFIG}", where=where)


def _names(value: object, name: str, where: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > _MOST_MODULES:
        raise UntrustedError(f"{name} in {CONFIG} is no list of names: {shown(str(value))}", where=where)
    return tuple(_text(item, name, where) for item in value)
