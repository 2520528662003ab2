"""The model folder that ranks serve where it is: each rank must see what the first one sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils.check_rules import (
    GB,
    Facts,
    Finding,
    Limits,
    finding,
)

_WHY = "The weights are read there by every rank that serves them in place."


def model_folder(facts: Mapping[str, Facts], limits: Mapping[str, Limits]) -> list[Finding]:
    """A finding for each rank that has not the folder of the first rank with the same one.

    An error where the folder is required. Else such a rank gets a copy of its own: a warning, where the first
    rank has it on a share or the rank has other files there.
    """
    found, first = [], {}
    for host, known in facts.items():
        path, folder = limits[host].get("model_folder"), known.get("model_folder")
        if not path or not folder:
            continue
        name, right = first.setdefault(path, (host, folder))
        what = _fault(path, folder, name, right)
        required = limits[host]["model_folder_required"]
        if what and (required or right["shared"] or folder["exists"]):
            fix = (
                f"Mount the same file system there, at the same path (findmnt -T {path} on {name} shows it)"
                if right["shared"]
                else f"Copy it from {name}: rsync -a {name}:{path}/ {path}/"
            )
            rest = "." if required else ". Without that the rank gets its own copy."
            found.append(
                finding("model-folder", "error" if required else "warning", host, what, _WHY, fix + rest)
            )
    return found


def _fault(path: str, folder: Mapping[str, Any], name: str, right: Mapping[str, Any]) -> str:
    if not folder["exists"]:
        return f"there are no files in {path} ({folder['type']}); {name} has them on {right['type']}"
    if folder["leads_out"]:
        return f"{path} has symbolic links that lead out of it, as in a hub's cache"
    if folder["shape"] != right["shape"]:
        return f"{path} has {_amount(folder)}; {name} has {_amount(right)}, or other names or sizes"
    return ""


def _amount(folder: Mapping[str, Any]) -> str:
    return f"{folder['files']} files of {folder['bytes'] / GB:.1f} GB"
