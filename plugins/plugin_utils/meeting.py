"""Where the hosts of a task, one process each on the controller, wait for each other after each step."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

POLL_S = 0.05


def put(folder: Path, name: str, value: Any) -> None:
    """Write JSON as a file of the folder, which no reader sees in part."""
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".", delete=False) as file:
        json.dump(value, file)
    Path(file.name).replace(folder / name)


class Meeting:
    """A folder with one file a host and step, named STEP.HOST by numbers. Each host takes the same steps."""

    def __init__(self, folder: Path, host: str, hosts: Sequence[str]) -> None:
        self.folder, self._hosts = folder, list(hosts)
        self._number = self._hosts.index(host)
        self._step = 0
        self._ansible = os.getppid()
        folder.mkdir(mode=0o700, exist_ok=True)
        if (folder / f"{self._number}.left").exists():
            raise AnsibleActionFail("Hosts meet once in a task: remove its loop or its retries.")

    def exchange(self, value: Any) -> dict[str, Any]:
        """Post what this host has to say; what all have said, by host. None of one that has left the task.

        AnsibleActionFail where Ansible was killed: its processes go on, and must take no further step.
        """
        self._require_ansible()
        self._step += 1
        put(self.folder, f"{self._step}.{self._number}", value)
        found: dict[str, Any] = {}
        while len(found) < len(self._hosts):
            for number, host in enumerate(self._hosts):
                if host not in found and (path := self._path(number)) is not None:
                    found[host] = json.loads(path.read_text()) if path.suffix != ".left" else None
            if len(found) < len(self._hosts):
                self._require_ansible()
                time.sleep(POLL_S)
        return {host: found[host] for host in self._hosts}

    def leave(self) -> None:
        """Wait for nobody any more, and let nobody wait for this host."""
        put(self.folder, f"{self._number}.left", None)

    def _require_ansible(self) -> None:
        if os.getppid() != self._ansible:
            raise AnsibleActionFail("Ansible has ended.")

    def _path(self, number: int) -> Path | None:
        # In this order: a host posts its last step before it leaves.
        left = self.folder / f"{number}.left"
        has_left = left.exists()
        said = self.folder / f"{self._step}.{number}"
        return said if said.exists() else left if has_left else None
