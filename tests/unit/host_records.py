"""Hosts whose records are in folders of a test: node_script.py runs for real, without SSH and root."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.control.deployment.hosts import running
from headfirst.control.ownership import requests
from headfirst.decide.cluster.login import HostAccess

SCRIPT = Path(requests.__file__).with_name("node_script.py")
FOLDERS = ("/etc/headfirst", "/var/lib/headfirst", "/run/headfirst")


def script_for(root: Path) -> str:
    """The script with its folders below `root`."""
    text = SCRIPT.read_text()
    for folder in FOLDERS:
        (root / folder[1:]).parent.mkdir(parents=True, exist_ok=True)
        assert f'Path("{folder}")' in text
        text = text.replace(f'Path("{folder}")', f'Path("{root}{folder}")')
    return text


def request(
    root: Path, do: str, python: str = sys.executable, **fields: Any
) -> subprocess.CompletedProcess[str]:
    """Run the script once."""
    return subprocess.run(
        [python, "-c", script_for(root)],
        input=json.dumps({"do": do, **fields}),
        capture_output=True,
        text=True,
        check=False,
    )


class HostRecords:
    """Takes the place of SSH: the host `name` has its files in `root/name`."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.silent: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        monkeypatch.setattr(requests, "ask", self.ask)
        monkeypatch.setattr(running, "specifications", lambda *_: {})  # no containers

    def ask(self, access: HostAccess, do: str, *, timeout_s: float = 0, **fields: Any) -> dict[str, Any]:
        self.asked.append((access.host, do))
        if access.host in self.silent:
            raise NotReadyError("the host does not answer on SSH", where=access.host)
        script: dict[str, Any] = {"__name__": "node_script"}
        exec(script_for(self.folder(access.host)), script)
        try:
            answer: dict[str, Any] = script["answer"](json.loads(json.dumps({"do": do, **fields})))
        except SystemExit as end:
            raise NotReadyError(str(end), where=access.host) from end
        return answer

    def folder(self, host: str) -> Path:
        """Where the host's root is."""
        return self.root / host

    def file(self, host: str, path: str) -> Path:
        """A file of the host."""
        return self.folder(host) / path.lstrip("/")

    def record(self, host: str, path: str = "/etc/headfirst/owner.json") -> dict[str, Any] | None:
        """A JSON file of the host."""
        file = self.file(host, path)
        return json.loads(file.read_text()) if file.exists() else None
