"""Where facts of a host come from: files below a root folder, commands, the Docker Engine. Python 3.8+."""

from __future__ import annotations

import os
import subprocess
import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils import docker_api

COMMAND_TIMEOUT_S = 20.0
SBIN = ":/usr/sbin:/sbin"  # not in the PATH of a login without root


class HostSource:
    """A host's files and commands; those of a recorded host with another `root`, which stands for /.

    What is not there reads as empty: a host without GPUs has no nvidia-smi. Commands that do not come to an
    end are listed in `stuck`.
    """

    def __init__(self, root: str = "/") -> None:
        self.root = root.rstrip("/")
        self.stuck: t.List[str] = []

    def read(self, path: str) -> str:
        """Text of a file without the space around it; "" when it is absent or the driver has no answer."""
        return self.read_bytes(path).decode("utf-8", "replace").strip()

    def read_bytes(self, path: str) -> bytes:
        """The file's bytes; empty when it is absent, unreadable, or the driver answers EINVAL."""
        try:
            with open(self.root + path, "rb") as file:
                return file.read()
        except OSError:
            return b""

    def names(self, path: str) -> t.List[str]:
        """What a folder holds, sorted; empty when there is no such folder."""
        try:
            return sorted(os.listdir(self.root + path))
        except OSError:
            return []

    def real(self, path: str) -> str:
        """The path without links, or "" when it leads nowhere."""
        target = os.path.realpath(self.root + path)
        start = len(os.path.realpath(self.root)) if self.root else 0
        return target[start:] if os.path.exists(target) else ""

    def run(self, *argv: str, stdin: str = "") -> str:
        """Standard output of a command whatever its exit status; "" when there is no such command."""
        try:
            done = subprocess.run(
                argv,
                input=stdin.encode(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=COMMAND_TIMEOUT_S,
                env={**os.environ, "LC_ALL": "C", "PATH": os.environ.get("PATH", "") + SBIN},
                check=False,
            )
        except (FileNotFoundError, PermissionError):
            return ""
        except subprocess.TimeoutExpired:
            self.stuck.append(" ".join(argv))
            return ""
        return done.stdout.decode("utf-8", "replace")

    def docker(self, path: str) -> t.Dict[str, t.Any]:
        """The Docker Engine's answer to GET `path`; empty when there is none."""
        return docker_api.get(path)
