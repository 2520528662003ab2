"""A rendered Compose file, read back, is the plan's containers."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from headfirst.decide.containers.spec import Container
from headfirst.decide.plan.types import Plan
from headfirst.decide.render import compose
from headfirst.decide.render.host_parts import hosts
from headfirst.decide.render.shell import PROBE
from rendering import HEADER, ODD, planned, with_words
from serving import QuietHandler

INVENTORIES = ["lab.ini", "a100x4.ini", "h100x2-services.ini", "h200x1.ini", "a100x1-70b.ini"]


def read(plan: Plan) -> list[dict[str, Any]]:
    """The Compose files in their order."""
    made = compose.files(plan, HEADER)
    return [yaml.safe_load(made[name].text) for name in sorted(made) if name.endswith(".yaml")]


def unescaped(value: Any) -> Any:
    """As Compose reads it: $$ is $, and a single one would be a variable."""
    if isinstance(value, str):
        assert "$" not in value.replace("$$", "")
        return value.replace("$$", "$")
    if isinstance(value, dict):
        return {key: unescaped(below) for key, below in value.items()}
    return [unescaped(below) for below in value] if isinstance(value, list) else value


def container(service: dict[str, Any], secrets: dict[str, Any]) -> Container:
    """The container that Compose would make."""
    found = unescaped(service)
    volumes = list(found.get("volumes", []))
    env_file = None
    for secret in found.get("secrets", []):
        assert secrets[secret["source"]] == {"file": f"./secrets/{secret['source']}"}
        # In the plan, between the model and the cache.
        volumes.insert(
            len([one for one in volumes if one.endswith(":ro")]), f"{secret['target']}:{secret['target']}:ro"
        )
    for name in found.get("env_file", []):
        env_file = f"/etc/headfirst/{name.removeprefix('./secrets/')}"
    gpus = None
    if "deploy" in found:
        (device,) = found["deploy"]["resources"]["reservations"]["devices"]
        assert device["driver"] == "nvidia"
        assert device["capabilities"] == ["gpu"]
        gpus = device["count"] if "count" in device else f"device={','.join(device['device_ids'])}"
    return Container(
        name=found["container_name"],
        image=found["image"],
        entrypoint=found["entrypoint"][0] if "entrypoint" in found else None,
        command=found.get("command", []),
        environment=found.get("environment", {}),
        env_file=env_file,
        network_mode=found["network_mode"],
        ipc_mode=found.get("ipc"),
        cgroup_parent=found.get("cgroup_parent"),
        shm_size=found.get("shm_size"),
        volumes=volumes,
        devices=found.get("devices", []),
        gpus=gpus,
        cap_add=found.get("cap_add", []),
        cap_drop=found.get("cap_drop", []),
        ulimits=found.get("ulimits", {}),
        restart_policy=found["restart"],
        init=found["init"],
    )


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_the_containers_are_those_of_the_plan(inventory: str) -> None:
    plan = planned(inventory)
    for page, host in zip(read(plan), hosts(plan), strict=True):
        found = [container(service, page.get("secrets", {})) for service in page["services"].values()]
        expected = [part.container for part in host.parts]
        assert found == expected


def test_odd_words_arrive_as_they_are() -> None:
    plan = with_words(planned("lab.ini"), ODD)
    head, worker = read(plan)
    planned_head, planned_worker = plan.services[0].replicas[0].nodes
    assert container(head["services"]["engine"], head["secrets"]) == planned_head.container.without_files()
    assert container(worker["services"]["engine"], {}) == planned_worker.container


def test_one_host_has_one_file_in_which_the_page_waits_for_the_engine() -> None:
    plan = planned("h200x1.ini")
    assert [name for name in compose.files(plan, HEADER) if name.endswith(".yaml")] == ["compose.yaml"]
    (page,) = read(plan)
    engine, webui = page["services"]["engine"], page["services"]["webui"]
    assert webui["depends_on"] == {"engine": {"condition": "service_healthy"}}
    ready = plan.services[0].readiness
    assert engine["healthcheck"]["start_period"] == f"{ready.start_seconds}s"
    assert engine["healthcheck"]["test"][:3] == ["CMD", "python3", "-c"]
    assert engine["healthcheck"]["test"][4].endswith(ready.path)


def test_a_router_on_one_host_is_in_the_same_file() -> None:
    plan = planned("h200x1.ini", "model=Qwen/Qwen3-32B", "gpus_per_replica=4", "replicas=2")
    (page,) = read(plan)
    assert list(page["services"]) == ["engine", "engine-1", "router", "webui"]
    assert set(page["services"]["router"]["depends_on"]) == {"engine", "engine-1"}
    assert set(page["secrets"]) == {"engine.yaml", "engine-1.yaml"}


def test_on_several_hosts_the_head_waits_for_nobody() -> None:
    """`docker-compose up` on the head would wait for workers that start after it."""
    assert not [
        service
        for page in read(planned("lab.ini"))
        for service in page["services"].values()
        if "depends_on" in service
    ]


def test_only_rank_0_is_asked_for_its_health() -> None:
    head, worker = read(planned("lab.ini"))
    assert "healthcheck" in head["services"]["engine"]
    assert "healthcheck" not in worker["services"]["engine"]


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (401, 1)])
def test_the_health_check_asks_with_the_key(tmp_path: Path, status: int, code: int) -> None:
    asked: list[str] = []

    class Engine(QuietHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers['Authorization']}")
            self.send_response(status)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Engine) as server:
        threading.Thread(target=server.handle_request).start()
        config = tmp_path / "engine.yaml"
        config.write_text("api-key: sk-mine\n")
        url = f"http://127.0.0.1:{server.server_port}/health"
        done = subprocess.run(
            [sys.executable, "-c", PROBE, url, str(config)],
            capture_output=True,
            env={"http_proxy": "http://127.0.0.1:1"},
        )
    assert done.returncode == code, json.dumps(asked)
    assert asked == ["/health Bearer sk-mine"]
