"""Why role weights cannot work with its variables and what a host reports. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import FOLDER, SOURCES


def refusal(
    variables: Mapping[str, Any],
    host: str,
    folders: Mapping[str, Any],
    state: Mapping[str, Any],
    choice: Mapping[str, Any],
    missing: int,
) -> str:
    """The first reason of `host`, with what to change; "" where there is none.

    `variables` are the role's, without the prefix. `folders` is what shared_folder_facts returned, `state`
    what the host reports ({} in check mode on a clean host), `choice` what weights_choice returned. `missing`
    is the number of hosts of the play without the model; 0 in check mode.
    """
    reasons = [
        state.get("error", ""),
        *_combinations(variables),
        *_folders(variables, host, folders, state),
        *_members(variables),
    ]
    if missing and variables["members"] and choice["order"][:1] != variables["members"][:1]:
        reasons.append(
            "The head, weights_members[0], signs what the others receive, and has no part in this play: it"
            " is not among its hosts, or shares the weights_dir of one that comes before it. Add it, as the"
            " first host."
        )
    return next(filter(None, reasons), "")


def _combinations(variables: Mapping[str, Any]) -> Iterator[str]:
    name, source = variables["name"], SOURCES[variables["source"]]
    if variables["convert_to_bf16"] and variables["source_name"] == name:
        yield (
            f"weights_name and weights_source_name are both {name}. A converted model needs two folders: call"
            f" it {name}-bf16."
        )
    if variables["shared"] == "in_place" and variables["convert_to_bf16"]:
        yield (
            "weights_shared=in_place: the model is converted to BF16, so it cannot be served where it is."
            " Set weights_shared=auto."
        )
    if variables["shared"] == "in_place" and source is not FOLDER:
        yield f"weights_shared=in_place is for weights_source=path; the model comes from {source.name}."
    if not source.is_hub and not source.has(variables["model"]):
        yield f"With weights_source={source.name} the model is {source.ids}; it is {variables['model']}."
    if variables["layers"] and not variables["hidden_layers"]:
        yield "Set weights_hidden_layers: weights_layers divides them."


def _folders(
    variables: Mapping[str, Any], host: str, folders: Mapping[str, Any], state: Mapping[str, Any]
) -> Iterator[str]:
    model, served = variables["model"], f"{variables['dir']}/{variables['name']}"
    if variables["shared"] == "in_place":
        if not folders["model"].get("exists", True):
            yield f"weights_shared=in_place: there are no files in {model} on {host}. Mount the share there."
        if state.get("occupied") and model != served:
            yield f"weights_shared=in_place: {served} on {host} is a copy of the model. Remove it."
    if folders["error"]:
        yield (
            f"{variables['dir']} is on {folders['place']['type']}, a shared file system, and cannot be"
            f" written: {folders['error']}. Export it so that root on this host may write there."
        )


def _members(variables: Mapping[str, Any]) -> Iterator[str]:
    address, members = variables["address"], variables["members"]
    if members and address not in members:
        yield f"weights_address {address} is none of weights_members {', '.join(members)}."
    if len(members) > 1 and not variables["has_token"]:
        yield "Set weights_token, the same on all hosts: these pass the weights on to each other."
