"""Folders of this user on the controller, after the XDG base directory specification."""

from __future__ import annotations

import os
from pathlib import Path

from headfirst.common.errors import InputError


def state_dir(*parts: str) -> Path:
    """Folder under `~/.local/state/headfirst` (credentials, logs, lab nodes), made with mode 0700."""
    return _private("XDG_STATE_HOME", "~/.local/state", parts)


def cache_dir(*parts: str) -> Path:
    """Folder under `~/.cache/headfirst` (images, wheels): safe to delete."""
    return _private("XDG_CACHE_HOME", "~/.cache", parts)


def user_data_dir(*parts: str) -> Path:
    """Folder under `~/.local/share/headfirst` (the catalogue that was read from a hub)."""
    return _private("XDG_DATA_HOME", "~/.local/share", parts)


def config_file(name: str) -> Path:
    """A file under `~/.config/headfirst`, which the user writes; it need not be there."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "headfirst" / name


def _private(variable: str, default: str, parts: tuple[str, ...]) -> Path:
    root = Path(os.environ.get(variable) or default).expanduser() / "headfirst"
    folder = root.joinpath(*parts)
    try:
        for path in (root, folder):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"the folder {folder} cannot be made: {error.strerror}",
            hint=f"Set {variable} to a folder that you can write.",
        ) from None
    return folder
