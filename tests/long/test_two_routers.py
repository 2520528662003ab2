"""Two replicas behind two routers: clients of either are served when the other one dies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from headfirst.decide.cluster.settings import ServiceSettings
from readme_lab import SMALL, deploy, on_node, own_lab, summary_of

PORT = ServiceSettings().router_port

pytestmark = pytest.mark.lab
INVENTORY = f"""\
[chat]
node1 ansible_host=10.213.93.11
node2 ansible_host=10.213.93.12

[chat:vars]
model_source=demo
model=headfirst-demo
replicas=2

[router]
node1
node2

[all:vars]
cluster_name=routers
lab_subnet=10.213.93.0/24
lab_memory=5g
router_image_source=build
{SMALL}"""
CONTAINER = "headfirst-router-chat"


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_lab(tmp_path_factory.mktemp("routers") / "routers.ini", INVENTORY) as path:
        yield path


@pytest.fixture(scope="module")
def summary(inventory: Path) -> dict[str, Any]:
    """What `deploy up` reports, with the API key of the service under `key`."""
    found = summary_of("up", inventory=inventory)
    keys = json.loads(Path(found["credentials"]).read_text())["service_api_keys"]
    return found | {"key": keys["chat"]}


def ask(summary: dict[str, Any], url: str) -> int:
    body = {"model": summary["services"][0]["model"], "messages": [{"role": "user", "content": "Hello!"}]}
    headers = {"Authorization": f"Bearer {summary['key']}"}
    return httpx.post(f"{url}/chat/completions", json=body, headers=headers, timeout=120).status_code


def replicas(inventory: Path) -> dict[str, list[str]]:
    """The states of the replicas at each router, by the router's host."""
    status = json.loads(deploy("status", inventory=inventory, options=["--json"]).stdout)
    return {one["host"]: [replica["state"] for replica in one["replicas"]] for one in status["routers"]}


def test_both_routers_serve_both_replicas(summary: dict[str, Any], inventory: Path) -> None:
    urls = summary["services"][0]["api"]
    assert urls == [f"http://10.213.93.{host}:{PORT}/v1" for host in (11, 12)]
    assert [ask(summary, url) for url in urls] == [200, 200]
    assert replicas(inventory) == {"node1": ["ready", "ready"], "node2": ["ready", "ready"]}


def test_a_router_that_dies_costs_the_other_nothing_and_comes_back(
    summary: dict[str, Any], inventory: Path
) -> None:
    dying, other = summary["services"][0]["api"]
    on_node("node1", f"kill -9 $(docker inspect --format '{{{{.State.Pid}}}}' {CONTAINER})", inventory)
    assert {ask(summary, other) for _ in range(12)} == {200}
    ends = time.monotonic() + 120
    while replicas(inventory).get("node1") != ["ready", "ready"]:
        assert time.monotonic() < ends
        time.sleep(1)
    assert ask(summary, dying) == 200
