"""Root's rights for the few commands that need them: none are kept, each call is prefixed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from headfirst.common.errors import NotReadyError


def needs_password() -> bool:
    """Whether sudo would ask for a password now, on this terminal."""
    if os.geteuid() == 0 or shutil.which("sudo") is None or not sys.stdin.isatty():
        return False
    return subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode != 0


def ask_for_password() -> None:
    """Lets sudo ask, so that later commands need not; whether they need root is found out then."""
    subprocess.run(["sudo", "-v"], check=False)


def as_root(argv: list[str]) -> list[str]:
    """The command, prefixed with sudo where the caller is not root.

    A password is asked for only on a terminal. Raises NotReadyError where root cannot be had.
    """
    if os.geteuid() == 0:
        return argv
    hint = "Run the same command as root, or install sudo and allow this user to use it."
    if shutil.which("sudo") is None:
        raise NotReadyError("The lab needs root on this machine, and there is no sudo.", hint=hint)
    if subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0:
        return ["sudo", "-n", *argv]
    if not sys.stdin.isatty() or subprocess.run(["sudo", "-v"], check=False).returncode != 0:
        raise NotReadyError(
            "The lab needs root on this machine, and sudo does not grant it without a password here.",
            hint="Type `sudo -v`, then the same command again.",
        )
    return ["sudo", *argv]
