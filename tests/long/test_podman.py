"""The whole job with Podman: from bare nodes to an answer, what ends comes back, a change, and `down`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from headfirst.control import demo
from readme_lab import INVENTORY, Service, bring_up, deploy, hello, on_node, own_lab, started, succeeds

pytestmark = pytest.mark.lab
SUBNET = "10.226.0."
NODES = ("node1", "node2")
MORE = """\
[router]
node1

[monitoring]
node2

[all:vars]
container_runtime=podman
router_image_source=build
proxy_image_source=build
prometheus_image_source=build
grafana=false
"""


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    text = INVENTORY.read_text().replace("10.213.0.", SUBNET).replace("[all:vars]\n", MORE)
    with own_lab(tmp_path_factory.mktemp("inventory") / "lab-podman.ini", text) as path:
        yield path


@pytest.fixture(scope="module")
def service(inventory: Path) -> Service:
    return bring_up(inventory=inventory)


def answer(service: Service) -> str:
    return hello(service.api, service.api_key, service.model)


def comes_back(service: Service, before: list[str], inventory: Path, seconds: float) -> None:
    """Until every rank was started again and the service answers."""
    end = time.monotonic() + seconds
    while True:
        try:
            now = [started(node, inventory) for node in NODES]
            if all(map(str.__ne__, now, before)) and answer(service) == demo.answers()["Hello!"]:
                return
        except (httpx.HTTPError, KeyError, ValueError, OSError):
            pass
        assert time.monotonic() < end, on_node(
            "node1", "journalctl -u headfirst-supervisor -n 30; podman ps --all", inventory
        )
        time.sleep(2)


def containers(node: str, inventory: Path) -> set[str]:
    """Names of the containers that run."""
    return {*on_node(node, "podman ps --format '{{.Names}}'", inventory).split()}


def page_answers(service: Service) -> bool:
    try:
        return httpx.get(f"{service.url}/health", timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def test_from_bare_to_an_answer(service: Service, inventory: Path) -> None:
    assert answer(service) == demo.answers()["Hello!"]
    for node in NODES:
        assert on_node(node, "command -v dockerd || true", inventory) == ""
        assert "headfirst-engine" in containers(node, inventory)
    assert {"headfirst-router", "headfirst-webui"} <= containers("node1", inventory)
    assert "headfirst-prometheus" in containers("node2", inventory)
    # The key is in a file alone.
    assert service.api_key not in on_node("node1", "podman inspect headfirst-engine", inventory)


def test_a_second_run_changes_nothing(service: Service, inventory: Path) -> None:
    before = [started(node, inventory) for node in NODES]
    assert bring_up(inventory=inventory).changed == 0
    assert [started(node, inventory) for node in NODES] == before


def test_the_live_verbs(service: Service, inventory: Path) -> None:
    status = succeeds("status", inventory=inventory, options=["--json"])
    assert json.loads(status)["ready"], status
    assert "node2" in succeeds("logs", inventory=inventory, options=["--tail", "5"])
    done = deploy("diagnose", inventory=inventory)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stdout + done.stderr


def test_what_ends_is_started_again(service: Service, inventory: Path) -> None:
    before = [started(node, inventory) for node in NODES]
    on_node("node2", "podman kill headfirst-engine", inventory)
    comes_back(service, before, inventory, 180)
    on_node("node1", "podman kill headfirst-webui headfirst-router", inventory)
    end = time.monotonic() + 120
    while not (page_answers(service) and "headfirst-router" in containers("node1", inventory)):
        assert time.monotonic() < end, on_node("node1", "systemctl status 'headfirst-container@*'", inventory)
        time.sleep(2)


def test_a_change_and_the_way_back(service: Service, inventory: Path) -> None:
    before = [started(node, inventory) for node in NODES]
    argument = "--max-running-requests=7"
    changed = bring_up("-e", f"engine_args={argument}", inventory=inventory)
    assert changed.changed > 0 and answer(service) == demo.answers()["Hello!"]
    command = "podman inspect --format '{{.Config.Cmd}}' headfirst-engine"
    assert argument in on_node("node1", command, inventory)
    succeeds("rollback", inventory=inventory)
    comes_back(service, before, inventory, 60)
    assert argument not in on_node("node1", command, inventory)


def test_a_reboot(service: Service, inventory: Path) -> None:
    before = [started(node, inventory) for node in NODES]
    on_node("node1", "systemctl reboot --no-block", inventory)
    time.sleep(10)
    comes_back(service, before, inventory, 300)
    end = time.monotonic() + 180
    while not page_answers(service):
        assert time.monotonic() < end, on_node("node1", "systemctl status 'headfirst-container@*'", inventory)
        time.sleep(2)


def test_the_proxy(service: Service, inventory: Path) -> None:
    """The role itself proves that it answers, and refuses who has no key."""
    bring_up("-e", "proxy=true", inventory=inventory)
    assert "headfirst-proxy" in containers("node1", inventory)


def test_down(service: Service, inventory: Path) -> None:
    succeeds("down", inventory=inventory)
    units = "systemctl list-units --no-legend 'headfirst-container@*' | grep -v failed || true"
    for node in NODES:
        assert on_node(node, "podman ps --all --quiet", inventory) == ""
        assert on_node(node, units, inventory) == ""
