"""Collects a model's files: from a folder of this machine, or from its hub with the node tools themselves."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.plugin_utils.node_wheel import build_node_wheel

from headfirst.common.errors import NotReadyError
from headfirst.control.bundle.items import Item
from headfirst.control.machine import commands
from headfirst.control.machine.packages import Advance
from headfirst.control.run.amounts import size
from headfirst.node.weights.files import list_files

_HINT = "Check that this machine reaches the hub, then repeat the command: it continues where it stopped."


def of_folder(folder: Path, prefix: str) -> dict[str, Item]:
    """The files of a model folder by path in the bundle. NotReadyError where there is none."""
    names = list_files(folder) if folder.is_dir() else []
    if not names:
        raise NotReadyError(
            f"there is no model in {folder} on this machine",
            hint="With model_source=path the folder must be here for --weights; or leave out --weights.",
        )
    return {f"{prefix}/{name}": Item.of(folder / name) for name in names}


def fetched(folder: Path, tools: Path, source: str, id: str, revision: str, advance: Advance) -> Path:
    """The model's folder below `folder`, fetched from its hub and proven; what is there already stays.

    `tools` keeps an environment of the node tools. NotReadyError with the last lines of what failed.
    """
    target = folder / source / hashlib.sha256(f"{id}@{revision}".encode()).hexdigest()[:16]
    command = _tools(tools, source, advance)
    argv = [str(command), "fetch", id, str(target), "--from", source]
    advance(f"fetching {id}", 0, 0)
    commands.run(
        argv + (["--revision", revision] if revision else []),
        doing=f"Fetching {id}",
        hint=_HINT,
        watch=lambda: advance(f"fetching {id}: {_size(target)}", 0, 0),
    )
    return target


def _tools(folder: Path, source: str, advance: Advance) -> Path:
    """The command headfirst-weights of this version, with the hub's client."""
    wheel = build_node_wheel(folder / "wheels")
    venv = folder / f"{wheel.name.removesuffix('-py3-none-any.whl')}-{source}"
    command = venv / "bin" / "headfirst-weights"
    complete_mark = venv / "made"
    if complete_mark.is_file():
        return command
    advance("installing the node tools on this machine", 0, 0)
    doing = "Installing the node tools"
    new = ["venv", "--quiet", "--clear", "--python", sys.executable, str(venv)]
    commands.uv(*new, doing=doing, hint=_HINT)
    stem = wheel.name.removesuffix("-py3-none-any.whl")
    install = ["--directory", str(wheel.parent), "pip", "install", "--quiet", "--require-hashes"]
    lists = [f"--requirement={wheel.parent / f'{stem}.{name}.txt'}" for name in ("base", source)]
    python = f"--python={venv / 'bin' / 'python'}"
    # The list names the wheel by its place in this folder.
    commands.uv(*install, python, *lists, doing=doing, hint=_HINT)
    complete_mark.touch()
    return command


def _size(folder: Path) -> str:
    return size(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))
