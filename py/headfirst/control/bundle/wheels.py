"""Collects Python packages with pip: the node tools' from their locks, and Headfirst with what it needs."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.plugin_utils.node_wheel import LOCKS
from packaging.markers import Marker

from headfirst import __version__
from headfirst.collection import collection_root, data_dir, is_checkout
from headfirst.control import pip_config
from headfirst.control.bundle.items import Item, sha256
from headfirst.control.machine import commands
from headfirst.control.machine.packages import Advance

# The C libraries of every system that systems.RELEASES has, the newest first (Ubuntu 22.04: 2.35).
_PLATFORMS = tuple(
    f"--platform={name}_x86_64"
    for name in (*(f"manylinux_2_{minor}" for minor in range(35, 4, -1)), "manylinux2014", "linux")
)
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
# What builds Headfirst in a checkout, where `./deploy` installs it so that it can be edited.
_BUILD = ("hatchling>=1.27", "editables~=0.3")


def node_tools(folder: Path, python: str, advance: Advance) -> dict[str, Item]:
    """Wheels of the node tools for hosts with this Python, by file name; `folder` keeps them.

    No hub's client, since a bundle brings the weights or none.
    """
    advance(f"downloading Python packages of the node tools ({python})", 0, 0)
    return _locked(folder, [LOCKS["base"]], python, [f"--python-version={python}", *_PLATFORMS])


def controller(folder: Path, advance: Advance) -> dict[str, Item]:
    """Wheels with which a controller without a network installs Headfirst, for this machine's Python."""
    advance("downloading Python packages of Headfirst", 0, 0)
    if not is_checkout():
        wheels = _locked(folder / "locked", [data_dir("locks") / "requirements.lock"], _PYTHON)
        return wheels | _fresh(folder / "own", ["--no-deps", f"headfirst=={__version__}"])
    root = collection_root()
    locks = [root / "requirements.lock", root / "tools/requirements-uv.lock"]
    wheels = _locked(folder / "locked", locks, _PYTHON) | _fresh(folder / "build", _BUILD)
    build = ["build", "--wheel", "--clear", "--quiet", "--out-dir", str(folder / "own"), str(root)]
    commands.uv(*build, doing="Building Headfirst's wheel")
    return wheels | _items(folder / "own")


def applying(lock: str, python: str) -> str:
    """The packages of a lock for hosts with this Python (`3.11`); pip asks the markers of its own Python."""
    host = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "platform_machine": "x86_64",
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "extra": "",
    }
    packages = []
    for block in re.split(r"(?m)^(?=\S)", lock):
        first, _, rest = block.partition("\n")
        name, _, marker = first.rstrip("\\ ").partition(" ; ")
        if "==" in name and (not marker or Marker(marker).evaluate(host)):
            packages.append(f"{name} \\\n{rest}")
    return "".join(packages)


def _locked(folder: Path, locks: Sequence[Path], python: str, target: Sequence[str] = ()) -> dict[str, Item]:
    """Exactly what the locks name; a wheel that is there and has a hash of theirs is not fetched again."""
    folder.mkdir(parents=True, exist_ok=True)
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(applying(lock.read_text(), python) for lock in locks))
    _download(folder, ["--require-hashes", "--no-deps", *target, f"--requirement={requirements}"])
    locked_hashes = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", requirements.read_text()))
    return {name: item for name, item in _items(folder).items() if sha256(item.source) in locked_hashes}


def _fresh(folder: Path, arguments: Sequence[str]) -> dict[str, Item]:
    """What pip chooses now: no lock names it, so an older choice must not stay beside it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _download(folder, arguments)
    return _items(folder)


def _download(folder: Path, arguments: Sequence[str]) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    commands.run(
        [*pip, "--only-binary=:all:", f"--dest={folder}", *arguments],
        doing="Downloading Python packages",
        hint=commands.NO_INDEX,
        env=pip_config.exact_environment(os.environ),
    )


def _items(folder: Path) -> dict[str, Item]:
    return {path.name: Item.of(path) for path in sorted(folder.glob("*.whl"))}
