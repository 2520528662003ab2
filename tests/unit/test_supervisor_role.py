"""Role supervisor: the service runs with the files on the host, also after an interrupted run."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import headfirst
import jinja2
import pytest
import yaml
from headfirst.collection import collection_root
from headfirst.node.supervisor import daemon
from headfirst.node.supervisor.daemon import Daemon, Settings

ROLE = collection_root() / "roles" / "supervisor"
TASKS = yaml.safe_load((ROLE / "tasks" / "main.yml").read_text())
FILE = json.dumps(
    {"address": "127.0.0.51", "port": 1, "members": ["127.0.0.51"], "token": "new", "keys": {}}
).encode()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """What the service writes that was started with FILE."""
    (tmp_path / "supervisor.json").write_bytes(FILE)
    monkeypatch.setattr(daemon, "STATE", tmp_path / "state.json")
    Daemon(Settings.read(tmp_path / "supervisor.json"))._write_state()
    return (tmp_path / "state.json").read_bytes()


def service_state(state: bytes | None, *, file: bytes = FILE, unit_changed: bool = False) -> str:
    """What the role asks of systemd, from the real task."""
    (task,) = [task for task in TASKS if "ansible.builtin.systemd_service" in task]
    environment = jinja2.Environment(autoescape=False)
    environment.tests["changed"] = lambda result: bool(result["changed"])
    environment.filters["b64decode"] = lambda text: base64.b64decode(text).decode()
    environment.filters["from_json"] = json.loads
    render = environment.compile_expression
    known: dict[str, Any] = {
        "__supervisor_seen": {} if state is None else {"content": base64.b64encode(state).decode()},
        "__supervisor_written": {"checksum": hashlib.sha1(file).hexdigest()},
        "__supervisor_unit_written": {"changed": unit_changed},
        "__supervisor_version": {"stdout": headfirst.__version__},
    }
    for name in ("__supervisor_started", "__supervisor_is_current"):
        known[name] = render(task["vars"][name].strip().removeprefix("{{").removesuffix("}}"))(known)
    asked = task["ansible.builtin.systemd_service"]["state"]
    return str(environment.from_string(asked).render(known))


def test_a_service_goes_on_with_its_files_and_is_started_again_with_others(state: bytes) -> None:
    """An interrupted run may have written the file, which is then unchanged for this run."""
    assert service_state(state) == "started"
    assert service_state(state, file=FILE.replace(b"new", b"newer")) == "restarted"
    assert service_state(state.replace(headfirst.__version__.encode(), b"0")) == "restarted"
    assert service_state(b'{"uptime": 1.0, "replicas": {}}') == "restarted", "one that publishes neither"
    assert service_state(None) == service_state(state, unit_changed=True) == "restarted", "the first files"
    assert b"new" not in state, "a secret"
