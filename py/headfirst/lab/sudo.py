"""Root's rights for the few commands that need them: none are kept, each call is prefixed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from headfirst.errors import NotReadyError


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
