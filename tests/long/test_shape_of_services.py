"""What clients see while the shape of a cluster changes: one service and two, with a proxy and without.

The figures are in docs/operations.md. Clients keep the address and the key that they have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from changing_lab import ANSWER, changes, fails, loaded
from client_load import ask, load
from headfirst.decide.cluster.settings import ServiceSettings
from readme_lab import SMALL, Service, bring_up, deploy, on_node, own_lab, succeeds

pytestmark = pytest.mark.lab
HEAD = "10.213.94.11"
ONE = """\
[head]
node1 ansible_host=10.213.94.11

[workers]
node2 ansible_host=10.213.94.12

[all:vars]
model=headfirst-demo
"""
TWO = """\
[chat]
node1 ansible_host=10.213.94.11

[chat:vars]
model=headfirst-demo

[embedding]
node2 ansible_host=10.213.94.12

[embedding:vars]
model=headfirst-demo-embedding
task=embedding

[all:vars]
"""
ONE_ROUTED = f"{ONE}replicas=2\n"
TWO_ROUTED = """\
[chat]
node1 ansible_host=10.213.94.11
node2 ansible_host=10.213.94.12

[chat:vars]
model=headfirst-demo
replicas=2

[embedding]
node2

[embedding:vars]
model=headfirst-demo-embedding
task=embedding

[all:vars]
"""
ALL = f"""\
model_source=demo
cluster_name=shapes
lab_subnet=10.213.94.0/24
lab_memory=5g
router_image_source=build
proxy_image_source=build
{SMALL}"""
BROKEN = "engine_args=--attention-backend fa3\n"  # CPUs have no such kernel: the ranks end
URL = f"http://{HEAD}:{ServiceSettings().engine_port}"


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_lab(tmp_path_factory.mktemp("shapes") / "shapes.ini", ONE + ALL) as path:
        yield path


@pytest.fixture(scope="module")
def first(inventory: Path) -> Service:
    """The cluster as it is at first: one service on two hosts."""
    return bring_up(inventory=inventory)


def names(node: str, inventory: Path) -> list[str]:
    command = "docker ps --filter name=headfirst-engine --format '{{.Names}}'"
    return sorted(on_node(node, command, inventory).split())


def test_two_services_that_fail_leave_the_one(first: Service, inventory: Path) -> None:
    with loaded(first, "one to two, failed", URL):
        told = fails(inventory, TWO.replace("[chat:vars]\n", f"[chat:vars]\n{BROKEN}") + ALL)
    assert "headfirst-engine was started again on node1 and serves" in told
    assert ask(URL, first.api_key, first.model) in ANSWER
    assert [names(node, inventory) for node in ("node1", "node2")] == [["headfirst-engine"]] * 2


def test_one_service_becomes_two(first: Service, inventory: Path) -> None:
    with loaded(first, "one to two", URL):
        told = changes(inventory, TWO + ALL)
    assert "headfirst-engine stops, because headfirst-engine-chat needs its GPUs or its address" in told
    assert names("node1", inventory) == ["headfirst-engine-chat"]
    assert names("node2", inventory) == ["headfirst-engine-embedding"]


def test_a_rollback_has_no_version_whose_hosts_another_service_has(first: Service, inventory: Path) -> None:
    with loaded(first, "rollback of two", URL) as seen:
        done = deploy("rollback", inventory=inventory, options=["--plain"])
    assert done.returncode == 2, done.stdout + done.stderr
    assert not seen.lost


def test_one_service_that_fails_leaves_the_two(first: Service, inventory: Path) -> None:
    changes(inventory, TWO + ALL)
    with loaded(first, "two to one, failed", URL):
        told = fails(inventory, ONE + BROKEN + ALL)
    assert "headfirst-engine-chat was started again on node1 and serves" in told
    # Without GPUs nothing of the one service is in the other one's place.
    assert "headfirst-engine-embedding was started again" not in told
    assert names("node1", inventory) == ["headfirst-engine-chat"]
    assert names("node2", inventory) == ["headfirst-engine-embedding"]


def test_two_services_become_one(first: Service, inventory: Path) -> None:
    with loaded(first, "two to one", URL):
        changes(inventory, ONE + ALL)
    assert [names(node, inventory) for node in ("node1", "node2")] == [["headfirst-engine"]] * 2
    with loaded(first, "rollback of one", URL):
        succeeds("rollback", inventory=inventory, options=["--plain"])
    assert ask(URL, first.api_key, first.model) in ANSWER


def test_replicas_of_a_service_that_gets_a_name_keep_their_router(first: Service, inventory: Path) -> None:
    changes(inventory, ONE_ROUTED + ALL)
    router = f"http://{HEAD}:{ServiceSettings().router_port}"
    with loaded(first, "replicas of one that becomes two", router):
        changes(inventory, TWO_ROUTED + ALL)
    assert ask(router, first.api_key, first.model) in ANSWER
    with loaded(first, "rollback of its replicas", router) as seen:
        succeeds("rollback", inventory=inventory, options=["--plain", "--service", "chat"])
    assert not seen.lost


def test_a_proxy_that_fails_leaves_the_ports_open(first: Service, inventory: Path) -> None:
    changes(inventory, ONE + ALL)
    # Another program takes the port after `check` found it free, when the role has written the proxy's files.
    waits = "while [ ! -e /etc/headfirst/proxy ]; do sleep 0.2; done; exec python3 -m http.server 80"
    on_node("node1", f"systemd-run --unit=taken sh -c '{waits}'", inventory)
    try:
        with loaded(first, "proxy on, failed", URL) as seen:
            assert "Is port 80 free?" in fails(inventory, f"{ONE}proxy=true\n{ALL}")
    finally:
        on_node("node1", "systemctl stop taken", inventory)
    assert not seen.lost


def test_the_ports_close_when_the_proxy_answers(first: Service, inventory: Path) -> None:
    with loaded(first, "proxy on, at the former address", URL):
        changes(inventory, f"{ONE}proxy=true\n{ALL}")
    assert ask(URL, first.api_key, first.model) != ANSWER
    key = json.loads(succeeds("keys", "add", inventory=inventory, options=["clients", "--json"]))["key"]
    proxied = f"http://{HEAD}"
    assert ask(proxied, key, first.model) in ANSWER
    with load((proxied, URL), key, first.model, ANSWER) as seen:
        changes(inventory, ONE + ALL)
    print(f"proxy off, at either address: {seen}")
    assert ask(URL, first.api_key, first.model) in ANSWER
