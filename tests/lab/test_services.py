"""Two replicas of a chat model behind a router, and an embedding model beside one, on the lab's two nodes."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import httpx
import pytest
from headfirst.control import demo
from headfirst.decide.cluster.settings import ServiceSettings
from readme_lab import SMALL, Service, deploy, on_node, summary_of

PORT = ServiceSettings().router_port

pytestmark = [pytest.mark.lab, pytest.mark.replaces_the_service]

# The nodes of inventories/lab.ini, which are there already.
CHAT = """\
[chat]
node1 ansible_host=10.213.0.11
node2 ansible_host=10.213.0.12

[chat:vars]
model_source=demo
model=headfirst-demo
replicas=2

"""
ROLLED = CHAT.replace("replicas=2\n", "replicas=2\nengine_args=--max-running-requests 8\n")
EMBEDDING = """\
[embedding]
node2

[embedding:vars]
model_source=demo
model=headfirst-demo-embedding
task=embedding

"""
ALL = f"""\
[all:vars]
cluster_name=lab
lab_subnet=10.213.0.0/24
lab_memory=5g
router_image_source=build
{SMALL}"""


ROUTER = f"http://10.213.0.11:{PORT}"
ENGINES = tuple(f"http://10.213.0.1{node}:{ServiceSettings().engine_port}" for node in (1, 2))


@pytest.fixture(scope="module")
def inventory(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An inventory of its own on the nodes of the README's lab, whose service goes."""
    path = tmp_path_factory.mktemp("services") / "services.ini"
    path.write_text(CHAT + EMBEDDING + ALL)
    # With its data: the chat page's accounts are those of another cluster.
    assert deploy("down", options=["--data", "--yes"]).returncode == 0
    try:
        yield path
    finally:
        assert deploy("down", inventory=path, options=["--data", "--yes"]).returncode == 0


@pytest.fixture(scope="module")
def summary(inventory: Path) -> dict[str, Any]:
    """What `deploy up` reports, with the API keys under `keys`."""
    found = up(inventory)
    keys = json.loads(Path(found["credentials"]).read_text())["service_api_keys"]
    return found | {"keys": keys}


def up(inventory: Path, *options: str) -> dict[str, Any]:
    return summary_of("up", inventory=inventory, options=options)


def containers(node: str) -> list[str]:
    return on_node(node, "docker ps --filter name=headfirst-engine --format '{{.Names}}'").split()


def post(url: str, key: str, **body: Any) -> httpx.Response:
    return httpx.post(url, headers={"Authorization": f"Bearer {key}"}, json=body, timeout=120)


def test_every_replica_answers_with_the_key_of_its_service(summary: dict[str, Any]) -> None:
    chat, embedding = summary["services"]
    assert (chat["service"], chat["api"], len(embedding["api"])) == ("chat", [f"{ROUTER}/v1"], 1)
    question = [{"role": "user", "content": "Hello!"}]
    for api in (*chat["api"], *(f"{engine}/v1" for engine in ENGINES)):
        answer = post(
            f"{api}/chat/completions",
            summary["keys"]["chat"],
            model=chat["model"],
            messages=question,
            temperature=0,
        )
        assert answer.json()["choices"][0]["message"]["content"] == demo.answers()["Hello!"]
        foreign = post(
            f"{api}/chat/completions", summary["keys"]["embedding"], model=chat["model"], messages=question
        )
        assert foreign.status_code == 401
    vector = post(
        f"{embedding['api'][0]}/embeddings",
        summary["keys"]["embedding"],
        model=embedding["model"],
        input="Hello!",
    )
    assert len(vector.json()["data"][0]["embedding"]) > 1


def test_each_rank_is_a_container_with_a_name_of_its_own(summary: dict[str, Any], inventory: Path) -> None:
    assert containers("node1") == ["headfirst-engine-chat"]
    assert sorted(containers("node2")) == ["headfirst-engine-chat-1", "headfirst-engine-embedding"]
    status = json.loads(deploy("status", inventory=inventory, options=["--json"]).stdout)
    found = [(one["service"], one["index"], one["ready"]) for one in status["replicas"]]
    assert found == [("chat", 0, True), ("chat", 1, True), ("embedding", 0, True)]
    one = deploy("logs", inventory=inventory, options=["--service", "chat/1", "--tail", "1"])
    assert one.stdout.startswith("[rank 0 node2]")


def ask(summary: dict[str, Any], text: str, words: int = 8) -> int:
    """The status of an answer of the router."""
    question = {"messages": [{"role": "user", "content": text}], "max_tokens": words, "temperature": 0}
    model = summary["services"][0]["model"]
    return post(f"{ROUTER}/v1/chat/completions", summary["keys"]["chat"], model=model, **question).status_code


def answered() -> list[int]:
    """How many chat requests each replica has answered since its start."""
    command = "docker logs {} 2>&1 | grep -c 'POST /v1/chat/completions' || true"
    names = ("headfirst-engine-chat", "headfirst-engine-chat-1")
    return [
        int(on_node(node, command.format(name))) for node, name in zip(("node1", "node2"), names, strict=True)
    ]


def routed(inventory: Path) -> list[str]:
    """The replicas' states at the router, as `deploy status` reports them."""
    status = json.loads(deploy("status", inventory=inventory, options=["--json"]).stdout)
    return [replica["state"] for router in status["routers"] for replica in router["replicas"]]


def test_the_router_spreads_requests_and_keeps_those_that_begin_alike_together(
    summary: dict[str, Any], inventory: Path
) -> None:
    assert routed(inventory) == ["ready", "ready"]
    before = answered()
    assert {ask(summary, f"{number} is a number.") for number in range(8)} == {200}
    apart = [after - count for after, count in zip(answered(), before, strict=True)]
    assert sum(apart) == 8
    # The policy keeps a balance, and is free to put most of so few requests on one replica.
    assert min(apart) >= 1
    before, beginning = answered(), "All of these questions begin with the same long text. " * 6
    assert {ask(summary, f"{beginning}{number}") for number in range(6)} == {200}
    assert 6 in [after - count for after, count in zip(answered(), before, strict=True)]
    shown = deploy("logs", inventory=inventory, options=["--rank", "router", "--tail", "1"])
    assert shown.stdout.startswith("[chat router node1]")


def test_the_chat_page_and_deploy_chat_ask_the_router(summary: dict[str, Any], inventory: Path) -> None:
    environment = on_node("node1", "docker inspect headfirst-webui --format '{{.Config.Env}}'")
    assert f"OPENAI_API_BASE_URLS={ROUTER}/v1" in environment.strip("[]").split()
    before = sum(answered())
    assert deploy("chat", inventory=inventory, options=["Hello!"]).stdout.strip() == demo.answers()["Hello!"]
    assert sum(answered()) == before + 1


def test_a_replica_that_is_killed_costs_no_request(summary: dict[str, Any], inventory: Path) -> None:
    with ThreadPoolExecutor(4) as clients:
        asked = [clients.submit(ask, summary, f"{number} requests later.") for number in range(24)]
        next(as_completed(asked))
        on_node("node2", "docker kill headfirst-engine-chat-1")
        assert {one.result() for one in asked} == {200}
    # The supervisor of its node starts it again.
    ends = time.monotonic() + 180
    while routed(inventory) != ["ready", "ready"]:
        assert time.monotonic() < ends
        time.sleep(1)


def test_a_second_up_changes_nothing(summary: dict[str, Any], inventory: Path) -> None:
    assert up(inventory)["changed"] == 0


def stream(summary: dict[str, Any], text: str) -> int:
    """The status of a streamed answer that came to its end; 0 for one that broke off."""
    model = summary["services"][0]["model"]
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 24, "stream": True}
    headers = {"Authorization": f"Bearer {summary['keys']['chat']}"}
    url = f"{ROUTER}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, headers=headers, timeout=120) as answer:
        lines = [line for line in answer.iter_lines() if line]
    return answer.status_code if lines and lines[-1] == "data: [DONE]" else 0


def test_a_rolling_change_costs_no_request(summary: dict[str, Any], inventory: Path) -> None:
    inventory.write_text(ROLLED + EMBEDDING + ALL)
    ended, statuses = threading.Event(), Counter[int]()

    def load(ask_once: Callable[[dict[str, Any], str], int]) -> None:
        while not ended.is_set():
            try:
                statuses[ask_once(summary, f"{sum(statuses.values())} answers later.")] += 1
            except httpx.HTTPError:
                statuses[0] += 1

    with ThreadPoolExecutor(4) as clients:
        asked = [clients.submit(load, one) for one in (ask, stream, ask, stream)]
        try:
            assert up(inventory)["changed"] > 0
        finally:
            ended.set()
        for one in asked:
            one.result()
    assert set(statuses) == {200}, statuses
    command = "docker inspect --format '{{.Args}}' headfirst-engine-chat"
    assert "--max-running-requests 8" in on_node("node1", command)
    assert "--max-running-requests 8" in on_node("node2", f"{command}-1")


def started() -> str:
    """When the replica started that shares its host with the embedding model."""
    return on_node("node2", "docker inspect --format '{{.State.StartedAt}}' headfirst-engine-chat-1")


def test_one_service_stops_and_starts_while_the_other_serves(
    summary: dict[str, Any], inventory: Path
) -> None:
    before = started()
    stopped = summary_of("down", inventory=inventory, options=["--service", "embedding"])
    assert (stopped["service"], stopped["kept"]) == ("embedding", [])
    assert containers("node2") == ["headfirst-engine-chat-1"]
    assert on_node("node2", "ls /etc/headfirst/*.yaml").split() == ["/etc/headfirst/engine-chat-1.yaml"]
    assert ask(summary, "Are you there?") == 200
    [embedding] = up(inventory, "--service", "embedding", "--tags", "serve")["services"]
    key = summary["keys"]["embedding"]
    vector = post(f"{embedding['api'][0]}/embeddings", key, model=embedding["model"], input="Hello!")
    assert len(vector.json()["data"][0]["embedding"]) > 1
    assert started() == before


def test_a_service_that_leaves_the_inventory_leaves_its_hosts(
    summary: dict[str, Any], inventory: Path
) -> None:
    before = started()
    inventory.write_text(ROLLED + ALL)
    assert up(inventory, "--tags", "serve")["changed"] > 0
    assert containers("node2") == ["headfirst-engine-chat-1"]
    assert started() == before
