"""The node image: a bare Debian or Ubuntu with systemd, sshd and Python, made from packages.

It is of this machine's own release, made once by mmdebstrap and kept by the engine until the last lab goes.
"""

from __future__ import annotations

import hashlib
import platform
import shlex
import subprocess
import tempfile
from pathlib import Path

import docker
from docker.errors import ImageNotFound

from headfirst.common.errors import NotReadyError
from headfirst.control.machine import apt
from headfirst.control.machine.packages import Advance
from headfirst.control.machine.sudo import as_root

REPOSITORY = "headfirst-lab-node"
_RECIPE = Path(__file__).parent / "node_image"
_PACKAGES = (
    "ca-certificates",
    "dbus",
    "iproute2",
    "iputils-ping",
    "openssh-server",
    "procps",
    "python3",
    "python3-apt",
    "rsync",
    "sudo",
    "systemd",
    "systemd-sysv",
)
# What a server in a lab never reads, and syncs that only guard against a power cut: installs are 2x faster.
_DPKG_OPTIONS = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "force-unsafe-io",
)
_STEPS = 20  # lines beginning with "I:" in the report of mmdebstrap 1.3; only a measure of progress


def ensure(client: docker.DockerClient, progress: Advance) -> str:
    """The name of the node image; it is made where it is missing or its recipe has changed.

    Raises NotReadyError with mmdebstrap's last lines.
    """
    name = f"{REPOSITORY}:{recipe_hash()}"
    try:
        client.images.get(name)
    except ImageNotFound:
        _build(client, name, progress)
    return name


def remove(client: docker.DockerClient) -> None:
    """Removes every node image that no container uses."""
    used = {
        container.attrs["Image"]
        for container in client.containers.list(all=True, filters={"label": "headfirst.lab"})
    }
    for image in client.images.list(name=REPOSITORY):
        if image.id not in used:
            client.images.remove(str(image.id), force=True)


def recipe_hash() -> str:
    """Changes with anything the image is made of, except the state of the archives."""
    digest = hashlib.sha256(repr((_suite(), _PACKAGES, _DPKG_OPTIONS)).encode())
    for path in sorted(path for path in _RECIPE.rglob("*") if path.is_file()):
        digest.update(f"\0{path.relative_to(_RECIPE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _build(client: docker.DockerClient, name: str, progress: Advance) -> None:
    what = f"making the node image from {_suite()} (usually 40–90 s)"
    progress(what, 0, _STEPS)
    repository, _, tag = name.partition(":")
    with tempfile.TemporaryDirectory(prefix="headfirst-lab-") as folder:
        root = Path(folder) / "root.tar"
        acquire = Path(folder) / "apt.conf"
        acquire.touch(mode=0o600)
        acquire.write_text(apt.acquire())
        _mmdebstrap(root, acquire, what, progress)
        said = client.api.import_image(src=str(root), repository=repository, tag=tag)
    # The engine reports a failure in its answer's text, after a status of success.
    if not client.images.list(name=name):
        raise NotReadyError(
            f"The Docker Engine does not accept the node image: {said.strip()[-300:]}",
            hint="Check the free space on its disk: `df -h /var/lib/docker`.",
        )
    progress(what, _STEPS, _STEPS)


def _mmdebstrap(root: Path, acquire: Path, what: str, progress: Advance) -> None:
    script = shlex.quote(str(_RECIPE / "customize.sh"))
    argv = ["mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(_PACKAGES)}"]
    argv += [f"--dpkgopt={option}" for option in _DPKG_OPTIONS]
    argv += [f"--aptopt={acquire}", '--setup-hook=mkdir -p "$1/etc/apt/auth.conf.d"']
    if Path("/etc/apt/auth.conf.d").is_dir():
        argv += ["--setup-hook=copy-in /etc/apt/auth.conf.d /etc/apt"]
    argv += [f'--customize-hook=sh {script} "$1"', _suite(), "-", "-"]
    lines: list[str] = []
    with root.open("wb") as tar, tempfile.TemporaryFile("w+") as sources:
        sources.write("\n".join(apt.sources()) + "\n")
        sources.seek(0)
        with subprocess.Popen(
            as_root(argv), stdin=sources, stdout=tar, stderr=subprocess.PIPE, text=True
        ) as process:
            for line in process.stderr or ():
                lines.append(line.rstrip())
                if line.startswith("I:"):
                    steps = sum(step.startswith("I:") for step in lines)
                    progress(what, min(steps, _STEPS - 1), _STEPS)
    if process.returncode != 0:
        tail = "\n".join(lines[-10:])
        raise NotReadyError(
            f"mmdebstrap could not make the node image:\n{tail}",
            hint="Check the network and the package sources with `apt-get update`, then repeat the command.",
        )


def _suite() -> str:
    release = platform.freedesktop_os_release()
    suite = release.get("VERSION_CODENAME")
    if release["ID"] not in ("debian", "ubuntu") or not suite:
        raise NotReadyError(
            f"Lab nodes need Debian or Ubuntu; this machine is {release.get('PRETTY_NAME', 'neither')}.",
            hint="Take the inventory's lab nodes out, or run the command on Debian 12 or Ubuntu 22.04/24.04.",
        )
    return suite
