"""Prefill and decode on two nodes, two replicas each: answers, ranks that end under load, a change."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest
from client_load import repeated
from greedy_reference import NEW_TOKENS, PROMPTS, references
from headfirst.control import demo
from readme_lab import ROOT, Service, bring_up, deploy, on_node, succeeds

pytestmark = pytest.mark.lab
INVENTORY = ROOT / "inventories" / "lab-disaggregated.ini"
IMAGE = "headfirst/vllm-cpu:0.32.0"
# Of the two prefill replicas on node1, and of the two decode replicas on node2.
PREFILL, DECODE = "headfirst-engine", "headfirst-engine-2"
PROMPT, ANSWER = next(iter(demo.answers().items()))
STREAMS = 2
CLIENTS = 6
FEW_CLIENTS, PAUSE_S = 2, 5.0
CORES_PER_RANK = 0.3


@pytest.fixture(scope="module")
def divided() -> Iterator[Service]:
    """The inventory's lab, up; it is removed in the end."""
    try:
        yield bring_up(inventory=INVENTORY)
    finally:
        succeeds("lab", "down", inventory=INVENTORY)


@dataclass
class Load:
    """What clients got: how many answers were right, and what came instead."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)  # whole answers
    broken: list[str] = field(default_factory=list)  # streams that ended with an error
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def load(service: Service, clients: int = CLIENTS, pause_s: float = 0.0) -> Iterator[Load]:
    """Clients that ask one request after the other; the last of them wait for their answers at the end."""
    seen, streams = Load(), STREAMS * clients // CLIENTS or 1

    def request(number: int) -> None:
        stream = number < streams
        text = ask(service, stream=stream)
        with seen.lock:
            if text == ANSWER:
                seen.right += 1
            else:
                (seen.broken if stream else seen.wrong).append(text)

    with repeated(request, clients, pause_s):
        yield seen


def ask(service: Service, *, stream: bool) -> str:
    """The answer to PROMPT, or what came instead."""
    body = {
        "model": service.model,
        "messages": [{"role": "user", "content": PROMPT}],
        "temperature": 0,
        "stream": stream,
    }
    headers = {"Authorization": f"Bearer {service.api_key}"}
    try:
        answer = httpx.post(f"{service.api}/v1/chat/completions", json=body, headers=headers, timeout=300)
    except httpx.HTTPError as error:
        return repr(error)
    if answer.status_code != 200:
        return f"{answer.status_code} {answer.text}"
    if not stream:
        return str(answer.json()["choices"][0]["message"]["content"])
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    deltas = [json.loads(event) for event in events]
    if any("error" in delta for delta in deltas):
        return answer.text
    return "".join(choice["delta"].get("content") or "" for delta in deltas for choice in delta["choices"])


def ready() -> bool:
    """Whether all replicas serve, at the router, too."""
    done = deploy("status", inventory=INVENTORY, options=["--json"])
    return bool(json.loads(done.stdout)["ready"])


def transferred() -> bool:
    """Whether a decode replica has logged KV cache that it got from a prefill replica."""
    logs = [
        on_node("node2", f"docker logs {name} 2>&1", INVENTORY) for name in (DECODE, "headfirst-engine-3")
    ]
    return any("Num successful transfers" in log for log in logs)


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, condition.__name__
        time.sleep(5)


def test_answers_equal_those_of_an_undivided_model_token_for_token(divided: Service) -> None:
    # smg passes no prompt of token ids on.
    for prompt, reference in zip(PROMPTS, references(IMAGE, INVENTORY), strict=True):
        answer = httpx.post(
            f"{divided.api}/v1/chat/completions",
            headers={"Authorization": f"Bearer {divided.api_key}"},
            json={
                "model": divided.model,
                "messages": [{"role": "user", "content": prompt}],
                "temperature": 0,
                "max_tokens": NEW_TOKENS,
                "return_token_ids": True,
            },
            timeout=300,
        ).json()
        assert answer["prompt_token_ids"] == reference.prompt
        assert answer["choices"][0]["token_ids"] == reference.answer
    wait_until(transferred, seconds=120)  # vLLM logs its transfers every 10 s


def test_status_names_the_roles(divided: Service) -> None:
    done = deploy("status", inventory=INVENTORY, options=["--json"])
    roles = [replica["role"] for replica in json.loads(done.stdout)["replicas"]]
    assert roles == ["prefill", "prefill", "decode", "decode"]


@pytest.mark.parametrize(("node", "name"), [("node2", DECODE), ("node1", PREFILL)], ids=["decode", "prefill"])
def test_a_rank_that_is_killed_under_load_takes_its_replica_only(
    divided: Service, node: str, name: str
) -> None:
    wait_until(ready, seconds=600)
    with load(divided) as seen:
        time.sleep(15)
        on_node(node, f"docker kill {name}", INVENTORY)
        time.sleep(45)
    print(f"{name} killed: {seen.right} right, {len(seen.wrong)} wrong, {len(seen.broken)} streams broken")
    assert seen.right > CLIENTS
    assert seen.wrong == []
    # A stream that has begun on the decode replica cannot be sent to another one.
    assert len(seen.broken) <= (STREAMS if name == DECODE else 0)
    wait_until(ready, seconds=600)
    assert ask(divided, stream=False) == ANSWER


def leave_cores() -> None:
    """NIXL's progress thread polls, so four ranks take the two cores that `deploy up` needs as well."""
    for node in ("node1", "node2"):
        names = "$(docker ps -q --filter name=headfirst-engine)"
        on_node(node, f"docker update --cpus {CORES_PER_RANK} {names}", INVENTORY)


def test_a_change_of_decode_replicas_loses_no_request(divided: Service) -> None:
    wait_until(ready, seconds=600)
    leave_cores()
    with load(divided, FEW_CLIENTS, PAUSE_S) as seen:
        for count in (1, 2):
            succeeds("up", inventory=INVENTORY, options=["--plain", "-e", f"decode_replicas={count}"])
            names = on_node(
                "node2", "docker ps --format '{{.Names}}' --filter name=headfirst-engine", INVENTORY
            )
            assert len(names.split()) == count
    print(f"decode_replicas=1, then 2: {seen.right} right, {seen.wrong}, {seen.broken}")
    assert seen.right > FEW_CLIENTS
    assert seen.wrong == seen.broken == []
