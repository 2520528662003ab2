"""Folders of this user on the controller, after the XDG base directory specification."""

from __future__ import annotations

import os
from pathlib import Path


def state_dir(*parts: str) -> Path:
    """Folder under `~/.local/state/headfirst` (credentials, logs, lab nodes), made with mode 0700."""
    return _private(os.environ.get("XDG_STATE_HOME"), "~/.local/state", parts)


def cache_dir(*parts: str) -> Path:
    """Folder under `~/.cache/headfirst` (images, wheels): safe to delete."""
    return _private(os.environ.get("XDG_CACHE_HOME"), "~/.cache", parts)


def _private(base: str | None, default: str, parts: tuple[str, ...]) -> Path:
    folder = Path(base or default).expanduser() / "headfirst"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = folder.joinpath(*parts)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
