"""vLLM over two nodes: `deploy up inventories/lab-vllm.ini`, its answers, ranks that die, and rehearsals."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import httpx
import pytest
from greedy_reference import NEW_TOKENS, references
from headfirst.control import demo
from readme_lab import ROOT, Service, bring_up, deploy, on_node, running, started, succeeds

pytestmark = pytest.mark.lab
INVENTORY = ROOT / "inventories" / "lab-vllm.ini"
IMAGE = "headfirst/vllm-cpu:0.32.0"
NODES = ("node1", "node2")


@pytest.fixture(scope="module")
def vllm() -> Iterator[Service]:
    """The inventory's lab, up; it is removed in the end."""
    try:
        yield bring_up(inventory=INVENTORY)
    finally:
        succeeds("lab", "down", inventory=INVENTORY)


def post(service: Service, path: str, **body: object) -> httpx.Response:
    headers = {"Authorization": f"Bearer {service.api_key}"}
    return httpx.post(f"{service.api}{path}", headers=headers, json=body, timeout=120)


def test_greedy_answers_equal_those_of_transformers(vllm: Service) -> None:
    for reference in references(IMAGE, INVENTORY):
        response = post(
            vllm,
            "/v1/completions",
            model=vllm.model,
            prompt=reference.prompt,
            temperature=0,
            max_tokens=NEW_TOKENS,
            return_token_ids=True,
        )
        assert response.json()["choices"][0]["token_ids"] == reference.answer


def test_the_key_is_required_and_in_no_argument(vllm: Service) -> None:
    assert httpx.get(f"{vllm.api}/v1/models").status_code == 401
    for node in NODES:
        assert vllm.api_key not in on_node(node, "docker inspect headfirst-engine", INVENTORY)


def test_the_chat_page_answers(vllm: Service) -> None:
    login = {"email": vllm.email, "password": vllm.password}
    token = httpx.post(f"{vllm.url}/api/v1/auths/signin", json=login, timeout=60).json()["token"]
    response = httpx.post(
        f"{vllm.url}/api/chat/completions",
        headers={"Authorization": f"Bearer {token}"},
        json={"model": vllm.model, "messages": [{"role": "user", "content": "Hello!"}], "stream": False},
        timeout=120,
    )
    assert response.json()["choices"][0]["message"]["content"] == demo.answers()["Hello!"]


def test_a_second_up_restarts_nothing(vllm: Service) -> None:
    before = [started(node, INVENTORY) for node in NODES]
    assert bring_up(inventory=INVENTORY).changed == 0
    assert [started(node, INVENTORY) for node in NODES] == before


def test_down_stops_the_headless_rank_of_a_dead_head(vllm: Service) -> None:
    on_node("node1", "docker kill headfirst-engine", INVENTORY)
    time.sleep(5)
    assert running("node2", INVENTORY)  # it does not notice
    succeeds("down", inventory=INVENTORY, options=["--plain"])
    for node in NODES:
        assert on_node(node, "docker ps --all --quiet --filter name=headfirst-", INVENTORY) == ""


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({}, None),
        ({"engine_args": ["--hf-overrides", '{"architectures": ["NoSuchForCausalLM"]}']}, "architecture"),
        ({"engine_env": "VLLM_CPU_KVCACHE_SPACE=900"}, "settings-refused"),
    ],
    ids=["healthy", "no class", "too little memory"],
)
def test_a_rehearsal_names_what_keeps_ranks_from_serving(
    vllm: Service, settings: dict[str, object], rule: str | None
) -> None:
    done = deploy("rehearse", inventory=INVENTORY, options=["--json", "-e", json.dumps(settings)])
    replica = json.loads(done.stdout.splitlines()[-1])["replicas"][0]
    cause = replica["found"]["decisive"]
    assert (done.returncode, cause and cause["rule"]) == (int(rule is not None), rule)
    for node in NODES:
        assert on_node(node, "docker ps --all --quiet --filter name=headfirst-", INVENTORY) == ""
