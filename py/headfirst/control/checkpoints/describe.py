"""Find out what a model is: from its folder, from its hub, or without a network from the catalogue."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headfirst.common.errors import NotReadyError
from headfirst.control.checkpoints.folder import describe_folder
from headfirst.decide.model import catalogue
from headfirst.decide.model.checkpoint import Checkpoint

if TYPE_CHECKING:
    import httpx


def describe(
    model: str,
    source: str,
    *,
    revision: str | None = None,
    folder: Path | None = None,
    offline: bool = False,
    environment: Mapping[str, str] = os.environ,
    transport: httpx.BaseTransport | None = None,
) -> Checkpoint:
    """Describe `model` (a hub id, or a path with source='path'); `source` is modelscope, huggingface or path.

    `folder` is a copy on this machine that is used instead of the hub. `offline` (or HF_HUB_OFFLINE=1) asks
    no hub. When the hub does not answer, the catalogue is used and `note` reports it; NotReadyError where it
    has no such model.
    """
    if source == "path" or folder is not None:
        return describe_folder(folder or Path(model), id=model, revision=revision)
    # httpx takes 250 ms to import, which a folder does not need.
    from headfirst.control.checkpoints.hub import Hub, HubUnreachableError, describe_hub

    hub = Hub.of(source, environment)
    if offline or environment.get("HF_HUB_OFFLINE", "0").upper() in ("1", "TRUE", "YES", "ON"):
        return _from_catalogue(model, revision, f"no request was sent to {hub.name} (offline)")
    try:
        return describe_hub(hub, model, revision=revision, transport=transport)
    except HubUnreachableError as error:
        return _from_catalogue(model, revision, error.what.rstrip("."))


def _from_catalogue(model: str, revision: str | None, why: str) -> Checkpoint:
    note = f"{why}; the model is described from the built-in catalogue."
    checkpoint = catalogue.lookup(model, revision=revision, note=note)
    if checkpoint is not None:
        return checkpoint
    near = catalogue.nearest(model)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    raise NotReadyError(
        f"{why}, and the catalogue has no {model}.",
        hint=f"{meant}Or fetch the model and set model_source=path with model=/its/folder.",
    )
