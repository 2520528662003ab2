"""Files on this machine that settings of an inventory name."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.decide.cluster.settings import PREFIX, ClusterSettings
from headfirst.decide.cluster.types import Cluster


def local_file(cluster: Cluster, text: str) -> Path:
    """The absolute path of the file that a setting names; a relative one starts at the inventory's folder."""
    return _beside(cluster.inventories[0].absolute(), text)


def _beside(inventory: Path, text: str) -> Path:
    path = Path(text)
    with contextlib.suppress(RuntimeError):  # no user of this name: there is no such file
        path = path.expanduser()
    return (inventory if inventory.is_dir() else inventory.parent) / path


def missing_bundle(settings: ClusterSettings, inventory: Path, where: str | None) -> InputError | None:
    """The refusal of a bundle that is no file."""
    paths = [_beside(inventory, name) for name in settings.bundle]
    if missing := next((path for path in paths if not path.is_file()), None):
        hint = f"Another program's? Write the settings of Headfirst as {PREFIX}NAME, or: -e bundle="
        return InputError(f"bundle: no such file: {missing}", where=where, hint=hint)
    return None


def private_file(path: Path, setting: str, where: str | None, most: int, what: str) -> bytes:
    """The first `most` bytes of a file that only its owner reads. InputError where it cannot be used.

    `what` is what a person writes into it.
    """
    try:
        # Without O_NONBLOCK a pipe would be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        # The value is not printed: a person may have written the secret itself.
        raise InputError(
            f"{setting} names no file of this machine",
            where=where,
            hint=f"Write {what} into a file, then: chmod 600 PATH, and {setting}=PATH, absolute or relative "
            "to the folder of the inventory.",
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it has a NUL"
        raise InputError(
            f"the file of {setting} cannot be read: {reason}",
            where=where,
            hint=f"{setting}=PATH names a file that you can read.",
        ) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InputError(
                "this is no regular file", where=str(path), hint=f"{setting} names a file with {what}."
            )
        if status.st_mode & 0o077:
            raise InputError("others can read or change this file", where=str(path), hint=f"chmod 600 {path}")
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)
