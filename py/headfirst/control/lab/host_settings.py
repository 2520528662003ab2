"""This machine's settings of apt and pip, in the form in which a lab node can use them.

They are no part of the node image: mirrors, proxies and credentials are the machine's, not the recipe's.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headfirst.control import pip_config
from headfirst.control.lab import node_apt, node_pip
from headfirst.control.lab.types import USER_ID
from headfirst.control.machine import apt
from headfirst.control.machine.sudo import as_root

# Taken as they are, with owner and mode: credentials, keys of the archives, certificates.
_PATHS = (
    "etc/apt/auth.conf",
    "etc/apt/auth.conf.d",
    "etc/apt/mirrors",
    "etc/apt/trusted.gpg",
    "etc/apt/trusted.gpg.d",
    "usr/local/share/ca-certificates",
)


NodeFile = tuple[str | bytes, int, int]
"""Content, mode and owner."""

RECORD = "etc/headfirst-lab/settings.json"
"""Where a node keeps which settings it was given: their fingerprint, and the files that carry them."""


@dataclass(frozen=True)
class MachineSettings:
    """What a node is given. `left_out` names each setting that a node cannot use, and why."""

    fingerprint: str
    left_out: tuple[str, ...]
    _node_files: Mapping[str, NodeFile] = field(repr=False)

    def archives(self) -> list[bytes]:
        """Tar archives to unpack at a node's root. May ask for root: some files here are root's alone."""
        archives = [archive(self._node_files)]
        if existing := [path for path in _PATHS if Path("/", path).exists()]:
            argv = as_root(["tar", "-C", "/", "-c", "--dereference", *existing])
            archives.append(subprocess.run(argv, capture_output=True, check=True).stdout)
        record = {"fingerprint": self.fingerprint, "files": sorted(_files_in(archives))}
        return [*archives, archive({RECORD: (json.dumps(record), 0o644, 0)})]


def collect() -> MachineSettings:
    """This machine's settings as they are now. Needs no root.

    Raises NotReadyError where apt on this machine has no Debian or Ubuntu archive.
    """
    for_apt = node_apt.for_node(apt.acquire())
    node_files: dict[str, NodeFile] = {
        "etc/apt/sources.list.d/headfirst-host.list": ("\n".join(apt.sources()) + "\n", 0o644, 0),
        # A proxy's address may carry a password.
        "etc/apt/apt.conf.d/30headfirst-host": (for_apt.conf, 0o600, 0),
    }
    node_files |= {path: (content, 0o600, 0) for path, content in for_apt.files.items()}
    pip = node_pip.for_node(pip_config.read(os.environ), os.environ)
    # May carry passwords, and both root and the user install with pip.
    if pip.conf:
        node_files["etc/pip.conf"] = (pip.conf, 0o600, USER_ID)
    node_files |= {path: (content, 0o600, USER_ID) for path, content in pip.files.items()}
    digest = hashlib.sha256(repr(sorted(node_files.items())).encode())
    for path in sorted(_existing_files()):
        # Not the content, which only root may read.
        status = path.stat()
        digest.update(repr((str(path), status.st_size, status.st_mtime_ns, status.st_mode)).encode())
    return MachineSettings(digest.hexdigest()[:16], (*for_apt.left_out, *pip.left_out), node_files)


def archive(files: Mapping[str, NodeFile]) -> bytes:
    """A tar archive of files by path."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, (content, mode, owner) in files.items():
            member = tarfile.TarInfo(path)
            data = content.encode() if isinstance(content, str) else content
            member.size, member.mode, member.uid, member.gid = len(data), mode, owner, owner
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _existing_files() -> Iterator[Path]:
    for path in (Path("/", name) for name in _PATHS):
        yield from [path] if path.is_file() else (file for file in path.rglob("*") if file.exists())


def _files_in(archives: list[bytes]) -> set[str]:
    names = set()
    for data in archives:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            names |= {member.name for member in tar if not member.isdir()}
    return names
