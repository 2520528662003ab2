"""Owner, lock and credentials of the README lab: two runs at once, a killed run, a rotation."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import httpx
import pytest
from headfirst.control.paths import state_dir
from readme_lab import INVENTORY, ROOT, Service, bring_up, deploy, on_node, started

pytestmark = pytest.mark.lab
NODES = ("node1", "node2")
LOCK = "cat /run/headfirst/lock.json 2>/dev/null || true"
CREDENTIALS = "/etc/headfirst/credentials.json"


def test_every_node_names_its_owner(service: Service) -> None:
    owners = [json.loads(on_node(node, "cat /etc/headfirst/owner.json")) for node in NODES]
    assert len({owner["id"] for owner in owners}) == 1
    assert owners[0]["service"] == service.model
    assert on_node("node1", f"stat -c '%a %U' {CREDENTIALS}") == "600 root"
    assert on_node("node2", f"ls {CREDENTIALS} 2>/dev/null || true") == ""
    assert on_node("node1", LOCK) == ""


def test_two_runs_at_once_and_one_is_killed(service: Service) -> None:
    first = subprocess.Popen(
        [str(ROOT / "deploy"), "up", str(INVENTORY), "--plain"], stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while not on_node("node2", LOCK) and time.monotonic() < deadline:
            time.sleep(0.2)
        second = deploy("down", options=["--plain"])
        assert second.returncode == 3, second.stdout + second.stderr
        assert "`deploy up` of cluster lab" in second.stderr
        assert f"process {first.pid}" in second.stderr
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert on_node("node1", LOCK)
    left = [path for path in Path(tempfile.gettempdir()).glob("h*/**/*") if path.is_file()]
    assert [path for path in left if service.api_key.encode() in path.read_bytes()] == []
    assert bring_up().api_key == service.api_key
    assert on_node("node1", LOCK) == ""


def accepts(service: Service, key: str) -> bool:
    answer = httpx.get(f"{service.api}/v1/models", headers={"Authorization": f"Bearer {key}"})
    return answer.status_code == 200


def signs_in(service: Service, password: str) -> bool:
    body = {"email": service.email, "password": password}
    return httpx.post(f"{service.url}/api/v1/auths/signin", json=body, timeout=30).status_code == 200


def texts(credentials: dict[str, str | dict[str, str]]) -> set[str]:
    """Every secret of a credentials file, with the API keys of named services."""
    return {
        text
        for value in credentials.values()
        for text in ([value] if isinstance(value, str) else value.values())
    }


@pytest.mark.slow
def test_a_rotation_and_a_second_controller(service: Service, tmp_path: Path) -> None:
    old = json.loads(on_node("node1", f"cat {CREDENTIALS}"))
    before = [started(node) for node in NODES]
    done = deploy("credentials", options=["--rotate", "--json"])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    new = json.loads(on_node("node1", f"cat {CREDENTIALS}"))
    try:
        assert not texts(new) & (texts(old) - {service.email})
        assert [started(node) for node in NODES] != before
        assert accepts(service, new["engine_api_key"])
        assert not accepts(service, old["engine_api_key"])
        assert signs_in(service, new["webui_admin_password"])
        assert not signs_in(service, old["webui_admin_password"])
        for text in (done.stdout, done.stderr):
            assert new["engine_api_key"] not in text
        (tmp_path / "headfirst").mkdir()
        (tmp_path / "headfirst" / "lab").symlink_to(state_dir("lab"))
        shown = subprocess.run(
            [str(ROOT / "deploy"), "credentials", str(INVENTORY), "--json"],
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert shown.returncode == 0, shown.stderr
        assert json.loads(shown.stdout) == new
    finally:
        # The credentials that the other tests have, by the way that an interrupted rotation goes on.
        pending = json.dumps({**old, "webui_admin_password_before": new["webui_admin_password"]})
        on_node("node1", f"printf %s {shlex.quote(pending)} >{CREDENTIALS}")
        assert bring_up().password == service.password
    assert signs_in(service, service.password)
    assert json.loads(on_node("node1", f"cat {CREDENTIALS}")) == old
