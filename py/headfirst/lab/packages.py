"""What the lab needs on this machine, installed with apt-get where it is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from headfirst.errors import NotReadyError
from headfirst.lab.sudo import as_root
from headfirst.lab.types import Progress

# Command -> package that brings it, on Debian and Ubuntu alike. dockerd may come from elsewhere already.
_COMMANDS = {
    "dockerd": "docker.io",
    "mmdebstrap": "mmdebstrap",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
_APPARMOR = Path("/sys/module/apparmor/parameters/enabled")


def ensure(progress: Progress) -> None:
    """Installs what is missing; does nothing when all is there.

    Raises NotReadyError where this is not Debian or Ubuntu, root is out of reach, or apt-get fails.
    """
    missing = missing_packages()
    if not missing:
        return
    what = f"installing {', '.join(missing)} on this machine"
    progress(what, 0, 2)
    apt_get("update")
    progress(what, 1, 2)
    apt_get("install", "--yes", "--no-install-recommends", *missing)
    progress(what, 2, 2)


def missing_packages() -> list[str]:
    """Names of the packages to install, each once."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    missing = {package for command, package in _COMMANDS.items() if not shutil.which(command, path=path)}
    # Docker cannot start a container on a kernel with AppArmor without the parser of its profiles.
    if _APPARMOR.exists() and _APPARMOR.read_text().startswith("Y"):
        missing |= set() if shutil.which("apparmor_parser", path=path) else {"apparmor"}
    return sorted(missing)


def apt_get(*arguments: str) -> None:
    """Runs apt-get as root. Raises NotReadyError with its last lines."""
    if shutil.which("apt-get") is None:
        raise NotReadyError(
            "The lab installs its tools with apt-get, and this machine has none.",
            hint=f"Install {', '.join(missing_packages())} by hand, or use Debian 12 or Ubuntu 22.04/24.04.",
        )
    argv = as_root(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", *arguments])
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.strip().splitlines()[-8:])
        raise NotReadyError(
            f"`apt-get {' '.join(arguments)}` failed on this machine:\n{tail}",
            hint="Check the network and the package sources with `apt-get update`, then repeat the command.",
        )
