"""Makes a lock, and leaves those hashes in it that belong to wheels which its hosts can install."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomllib
from packaging.utils import parse_wheel_filename
from uv import find_uv_bin

_MACHINES = ("x86_64", "aarch64", "arm64", "universal2")


def of_wheels_for(systems: tuple[str, ...], python: str, lock: str) -> str:
    """`lock` without hashes of source archives, of PyPy and of wheels for other systems than `systems`.

    `systems` are beginnings of platform tags (`manylinux`). A package that has no wheel for them is left out.
    """
    usable = {
        wheel["hash"]
        for package in _files(lock, python)
        for wheel in package.get("wheels", ())
        if _installs(Path(wheel.get("url") or wheel["path"]).name, systems)
    }
    blocks = []
    for block in packages(lock):
        pin, *hashes = re.split(r" \\\n +--hash=", block.rstrip("\n"))
        if usable_hashes := [digest for digest in hashes if digest in usable]:
            blocks.append(" \\\n    --hash=".join((pin, *usable_hashes)) + "\n")
    return "".join(blocks)


def compiled(requirements: str, *options: str, env: Mapping[str, str] | None = None) -> str:
    """The lock that uv makes of requirements."""
    argv = [find_uv_bin(), "pip", "compile", "-", "--quiet", *options]
    done = subprocess.run(argv, input=requirements, stdout=subprocess.PIPE, env=env, text=True, check=True)
    return done.stdout


def universal(requirements: str, python: str, *options: str, env: Mapping[str, str] | None = None) -> str:
    """The lock for all systems and for Pythons from `python` on, with the hash of each file."""
    all_of_them = ("--universal", f"--python-version={python}", "--generate-hashes")
    return compiled(requirements, *all_of_them, "--no-header", "--no-annotate", *options, env=env)


def packages(lock: str) -> list[str]:
    """Each package with its hashes; comments and lines of options are no packages."""
    return [block for block in re.split(r"(?m)^(?=\S)", lock) if "==" in block.partition("\n")[0]]


def _files(lock: str, python: str) -> list[dict[str, Any]]:
    """The packages of uv's own lock of the same versions: it has the name of each file."""
    pins = [block.partition("\n")[0].rstrip(" \\") for block in packages(lock)]
    with tempfile.TemporaryDirectory() as folder:
        project = f'[project]\nname = "hosts"\nversion = "0"\nrequires-python = ">={python}"\n'
        Path(folder, "pyproject.toml").write_text(f"{project}dependencies = {pins}\n")
        subprocess.run([find_uv_bin(), "lock", "--quiet"], cwd=folder, check=True)
        read: list[dict[str, Any]] = tomllib.loads(Path(folder, "uv.lock").read_text())["package"]
        return read


def _installs(name: str, systems: tuple[str, ...]) -> bool:
    return any(
        tag.interpreter.startswith(("cp", "py"))
        and (tag.platform == "any" or (tag.platform.startswith(systems) and tag.platform.endswith(_MACHINES)))
        for tag in parse_wheel_filename(name)[3]
    )
