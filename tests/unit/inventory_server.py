"""Ansible's library imported once for many inventories: a process that forks for each of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from headfirst.cluster import reading

# As the program itself would, a request and an answer a line; fork keeps Ansible's globals apart.
_SERVER = """
import importlib.util, json, os, sys
spec = importlib.util.spec_from_file_location("ansible_reader", sys.argv[1])
reader = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reader)
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        sys.stdout = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        try:
            found = reader.read(json.loads(line))
        except reader.Refusal as refusal:
            found = {"error": refusal.answer}
        sys.stdout.write(json.dumps(found) + "\\n")
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        print(json.dumps({"error": {"what": "the reader crashed", "where": None, "hint": None}}), flush=True)
"""


@pytest.fixture(scope="module")
def reader_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    scratch = str(tmp_path_factory.mktemp("reader"))
    command = [sys.executable, "-P", "-c", _SERVER, str(reading.READER)]
    pipe = subprocess.PIPE
    environment = reading.reader_environment(scratch) | {"HF_TEST_ROOT": "/from-env"}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as server:
        yield server
        assert server.stdin is not None
        server.stdin.close()


@pytest.fixture
def quick_reader(reader_server: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """headfirst.cluster.inventory.load reads through the server."""

    def ask(request: Mapping[str, Any]) -> dict[str, Any]:
        assert reader_server.stdin is not None
        assert reader_server.stdout is not None
        reader_server.stdin.write(json.dumps(request) + "\n")
        reader_server.stdin.flush()
        answer: dict[str, Any] = json.loads(reader_server.stdout.readline())
        return answer

    monkeypatch.setattr(reading, "_ask", ask)


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
