"""Ansible's library imported once for many inventories: a process that forks for each of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from headfirst.control.inventory import reading

# As the program itself would, a request and an answer a line; fork keeps Ansible's globals apart.
_SERVER = """
import importlib.util, json, os, sys
from ansible.parsing.vault import VaultSecretsContext
spec = importlib.util.spec_from_file_location("ansible_reader", sys.argv[1])
reader = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reader)
# What Ansible loads at its first inventory is loaded before the first fork.
reader.read(json.loads(sys.argv[2]))
reader.init_plugin_loader = lambda: None
VaultSecretsContext._current = None
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        asked = json.loads(line)
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        sys.stdout = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        try:
            found = reader.read(asked["request"])
        except reader.InventoryRefusal as refusal:
            found = {"error": refusal.answer}
        sys.stdout.write(json.dumps(found) + "\\n")
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        print(json.dumps({"error": {"what": "the reader crashed", "where": None, "hint": None}}), flush=True)
"""
_ask = reading._ask


class InventoryServer:
    """`ask` takes the place of reading._ask. What Ansible is told when it is imported is read as there."""

    def __init__(self, scratch: Path) -> None:
        self._environment = reading.reader_environment(str(scratch))
        self._settings = _settings()
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer, as of the program."""
        if _settings() != self._settings or Path("ansible.cfg").exists():
            return _ask(request)
        with self._lock:
            server = self._process = self._process or self._start()
            assert server.stdin and server.stdout
            environment = reading.reader_environment(self._environment["ANSIBLE_LOCAL_TEMP"])
            asked = {"request": request, "environment": environment, "folder": str(Path.cwd())}
            server.stdin.write(json.dumps(asked) + "\n")
            server.stdin.flush()
            answer: dict[str, Any] = json.loads(server.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process:
            self._process.communicate()

    def _start(self) -> subprocess.Popen[str]:
        example = Path(self._environment["ANSIBLE_LOCAL_TEMP"]) / "hosts.ini"
        example.write_text("[head]\nn1 ansible_host=192.0.2.1\n\n[all:vars]\nmodel='{{ 1 }}'\n")
        request = {"inventories": [str(example)], "extra_vars": [], "wanted": ["model"], "limit": None}
        request |= {"service_names": ["model"], "role_options": {}}
        command = [sys.executable, "-P", "-c", _SERVER, str(reading.READER), json.dumps(request)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=self._environment)


@contextmanager
def quick_inventories(scratch: Path) -> Iterator[None]:
    """This process reads inventories as the command does, but with Ansible's library imported once."""
    server = InventoryServer(scratch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_ask", server.ask)
        yield
    server.close()


def _settings() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if name == "HOME" or name.startswith("ANSIBLE_")
    }


def lay_out(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write the files; the first is the inventory (its folder where its name has one and ends with `/`)."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        if path.suffix == ".sh":
            path.chmod(0o755)
    first = next(iter(files))
    return folder / first.partition("/")[0]
