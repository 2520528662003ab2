"""Coding agents on a lab: the blocks of docs/how-to/coding-agents.md, as they are, by the real clients.

The model is fitted to a few questions (tests/agents); the plan chooses its parsers.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import agents_site
import httpx
import pytest
from documented import ROOT, section
from headfirst.control.deployment.lab_nodes import NODE_SHARE, share_dir
from readme_lab import SMALL, Service, bring_up, deploy, own_lab, succeeds

pytestmark = pytest.mark.lab
PAGE = ROOT / "docs" / "how-to" / "coding-agents.md"
MODEL = "Qwen3-agents"
INVENTORY = f"""\
[head]
node1 ansible_host=10.213.92.11

[all:vars]
cluster_name=agents
lab_subnet=10.213.92.0/24
lab_memory=5g
engine_args=--dtype float32 --context-length 65536 --max-total-tokens 65536 --chunked-prefill-size -1
model_source=path
weights_shared=stage
model={NODE_SHARE / MODEL}
served_model_name=my-model
{SMALL}"""
LONGEST_S = 600


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    shared = share_dir() / MODEL
    shutil.rmtree(shared, ignore_errors=True)
    shutil.copytree(agents_site.small_model(), shared)
    try:
        with own_lab(tmp_path_factory.mktemp("agents") / "agents.ini", INVENTORY) as path:
            yield path
    finally:
        shutil.rmtree(shared)


@pytest.fixture(scope="module")
def service(inventory: Path) -> Service:
    return bring_up(inventory=inventory)


class Desk:
    """A home, an empty project and the two variables of the page."""

    def __init__(self, folder: Path, service: Service) -> None:
        self.home, self.project = folder / "home", folder / "project"
        self.home.mkdir()
        self.project.mkdir()
        programs = [*map(str, agents_site.clients()), os.environ["PATH"]]
        self.environment = {
            "PATH": os.pathsep.join(programs),
            "HOME": str(self.home),
            "HEADFIRST_URL": f"{service.api}/v1",
            "HEADFIRST_KEY": service.api_key,
        }

    def run(self, *words: str) -> str:
        """What the command prints."""
        printed = self.home.parent / "printed"
        with printed.open("wb") as output:
            done = subprocess.run(
                words,
                cwd=self.project,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=LONGEST_S,
                check=False,
            )
        text = printed.read_text(errors="replace")
        assert done.returncode == 0, text
        return text

    def leave(self) -> None:
        """End what the clients left running: Cline has a daemon."""
        home = f"HOME={self.home}".encode()
        for environment in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # it has ended
                if home in environment.read_bytes().split(b"\0"):
                    os.kill(int(environment.parent.name), signal.SIGKILL)


@pytest.fixture
def desk(service: Service, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path, service)
    try:
        yield desk
    finally:
        desk.leave()


def text(heading: str, language: str) -> str:
    [block] = [block for block in section(PAGE, heading) if block.language == language]
    return block.text


def test_the_plan_has_the_parsers(service: Service, inventory: Path) -> None:
    plan = json.loads(succeeds("plan", inventory=inventory, options=["--json"]))
    found = plan["services"][0]["capabilities"]
    assert (found["tools"], found["reasoning"]) == (
        {"state": "on", "reason": "qwen"},
        {"state": "on", "reason": "qwen3"},
    )


def test_deploy_test_passes(service: Service, inventory: Path) -> None:
    done = deploy(
        "test", inventory=inventory, options=["--only", "tools.*", "--only", "reasoning.*", "--json"]
    )
    verdicts = {result["case"]: result["verdict"] for result in json.loads(done.stdout)["results"]}
    assert verdicts == dict.fromkeys(("tools.auto", "tools.named", "reasoning.separate"), "passed"), (
        done.stdout
    )
    assert done.returncode == 0


def test_the_openai_client(desk: Desk) -> None:
    printed = " ".join(desk.run(sys.executable, "-c", text("OpenAI client", "python")).split())
    assert 'thought: get_weather knows it. call: get_weather {"city": "Paris"}' in printed
    assert "answer: Done. The tool has answered." in printed


@pytest.mark.parametrize("client", ["opencode", "Qwen Code", "Cline"])
def test_a_coding_agent_calls_its_tool(client: str, desk: Desk) -> None:
    if client == "opencode":
        (desk.project / "opencode.json").write_text(text(client, "json"))
    printed = desk.run("bash", "-euc", text(client, "sh"))
    assert (desk.project / "hello.txt").read_text() == "hello\n", printed
    assert "Done. The tool has answered." in printed


def test_the_chat_page_calls_a_tool(service: Service) -> None:
    """As its page does: the answer of the model comes into a saved chat."""
    question = "What is the weather in Paris right now? Use the tool get_weather."
    login = {"email": service.email, "password": service.password}
    tool = {"id": "weather", "name": "Weather", "content": text("Open WebUI's tools", "python"), "meta": {}}
    asked, answer = str(uuid.uuid4()), str(uuid.uuid4())
    request = {
        "model": service.model,
        "stream": True,
        "messages": [{"role": "user", "content": question}],
        "tool_ids": [tool["id"]],
        "session_id": "test",
        "parent_id": None,
        "id": answer,
        "user_message": {"id": asked, "role": "user", "content": question, "parentId": None},
    }
    with httpx.Client(base_url=service.url, timeout=120, trust_env=False) as page:
        token = page.post("/api/v1/auths/signin", json=login).raise_for_status().json()["token"]
        page.headers["Authorization"] = f"Bearer {token}"
        page.post("/api/v1/tools/create", json=tool).raise_for_status()
        chat = page.post("/api/chat/completions", json=request).raise_for_status().json()["chat_id"]
        end = time.monotonic() + LONGEST_S
        message: dict[str, Any] = {}
        while not message.get("done"):
            assert time.monotonic() < end, message
            time.sleep(1)
            saved = page.get(f"/api/v1/chats/{chat}").raise_for_status().json()["chat"]
            message = saved["history"]["messages"][answer]
    steps = {step["type"]: step for step in message["output"]}
    assert json.loads(steps["function_call"]["arguments"]) == {"city": "Paris"}
    assert "rain in Paris" in json.dumps(steps["function_call_output"]["output"])
    assert "Done. The tool has answered." in json.dumps(steps["message"]["content"])
