"""Find out what a model is: from its folder, from its hub, or without a network from the catalogue."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import FOLDER

from headfirst.common.errors import InputError, NotReadyError, located
from headfirst.control.checkpoints.folder import describe_folder
from headfirst.decide.model import catalogue
from headfirst.decide.model.checkpoint import Checkpoint

OFFLINE = "HF_HUB_OFFLINE"
"""The variable that forbids requests, as huggingface_hub reads it; it counts for both hubs."""


def is_offline(environment: Mapping[str, str]) -> bool:
    """Whether no request may be sent to a hub."""
    return environment.get(OFFLINE, "0").upper() in ("1", "TRUE", "YES", "ON")


@located(hint="Copy the model's files again, take another revision (model_revision), or another model.")
def describe(
    model: str,
    source: str,
    *,
    revision: str | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Checkpoint:
    """Describe `model` (a hub id, or a path with source='path').

    `folder` is a copy on this machine that is used instead of the hub. HF_HUB_OFFLINE=1 sends no request.
    Where the hub does not answer, what it sent for an earlier plan is used, else the catalogue, and `note`
    reports it; NotReadyError where neither has the model.
    """
    if source == FOLDER.name or folder is not None:
        return describe_folder(folder or Path(model), id=model, revision=revision)
    _refuse_place(model)
    # httpx takes 250 ms to import, which a folder does not need.
    from headfirst.control.checkpoints.hub import describe_stored, read_hub
    from headfirst.control.checkpoints.hub_requests import Hub, HubUnreachableError

    hub = Hub.of(source, environment)
    if is_offline(environment):
        why, advice, way_out = f"no request was sent to {hub.name} ({OFFLINE})", "", f"Unset {OFFLINE}"
    else:
        try:
            return read_hub(hub, model, revision=revision).checkpoint
        except HubUnreachableError as error:
            why, advice = error.what.rstrip("."), f" {OFFLINE}=1 plans without a request."
            way_out = f"Check network and proxy, or name a mirror in {hub.source.endpoint_variable}"
    stored = describe_stored(hub, model, revision=revision, note=why)
    return stored or _from_catalogue(model, revision, f"{why}.{advice}", why, way_out)


def _refuse_place(model: str) -> None:
    """InputError for a folder or an address, which no hub has as an id."""
    if "://" in model or model.startswith(("/", ".", "~")):
        raise InputError(
            f"model={model} is a folder or an address, and model_source names a hub, which is asked by id",
            hint="For a folder of the head write model_source=path and model=/its/path; for a hub "
            f"model={'/'.join(model.rstrip('/').split('/')[-2:])}.",
        )


def _from_catalogue(model: str, revision: str | None, note: str, why: str, way_out: str) -> Checkpoint:
    checkpoint = catalogue.lookup(model, revision=revision, note=note)
    if checkpoint is not None:
        return checkpoint
    near = catalogue.nearest(model)
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    raise NotReadyError(
        f"{why}, and the catalogue has no {model}.",
        hint=f"{meant}{way_out}; or fetch the model and set model_source=path with model=/its/folder.",
    )
