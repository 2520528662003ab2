"""`deploy render --to compose` with Debian's docker-compose on lab nodes: two hosts; one with the page."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from headfirst.control import demo
from headfirst.decide.cluster.settings import ClusterSettings, ServiceSettings
from readme_lab import INVENTORY, hello, on_node, own_lab, succeeds

ENGINE_PORT, PAGE_PORT = ServiceSettings().engine_port, ClusterSettings().webui_port
pytestmark = pytest.mark.lab
SUBNET = "10.229.0."
HEAD = f"{SUBNET}11"
FOLDER = "/root/rendered"


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lab of two nodes with Docker, images and weights, on which nothing of `deploy up` runs any more."""
    text = INVENTORY.read_text().replace("10.213.0.", SUBNET)
    with own_lab(tmp_path_factory.mktemp("inventory") / "lab-render.ini", text) as path:
        for verb in ("up", "down"):
            succeeds(verb, inventory=path, options=["--plain"])
        for node in ("node1", "node2"):
            on_node(node, "apt-get -qq update && apt-get -qq install -y docker-compose curl >/dev/null", path)
        yield path


def render(inventory: Path, folder: Path) -> Path:
    succeeds("render", inventory=inventory, options=["--to", "compose", "-o", str(folder)])
    subprocess.run([folder / "make-secrets.sh"], check=True)
    return folder


def bring(folder: Path, node: str, inventory: Path) -> None:
    """Copy the folder to a node."""
    on_node(node, f"rm -rf {FOLDER}", inventory)
    name = f"headfirst-{inventory.stem}-{node}"
    subprocess.run(["docker", "cp", str(folder), f"{name}:{FOLDER}"], check=True, capture_output=True)


def compose(node: str, words: str, inventory: Path) -> str:
    return on_node(node, f"cd {FOLDER} && docker-compose {words} 2>&1", inventory)


def answer(key: str) -> str:
    return hello(f"http://{HEAD}:{ENGINE_PORT}", key)


def key_of(folder: Path) -> str:
    return (folder / "secrets" / "api-key").read_text().strip()


def test_two_hosts_head_first(inventory: Path, tmp_path: Path) -> None:
    folder = render(inventory, tmp_path / "out")
    for node in ("node1", "node2"):
        bring(folder, node, inventory)
    compose("node1", "-f 1-node1.yaml up -d", inventory)
    compose("node2", "-f 2-node2.yaml up -d", inventory)
    on_node("node1", f"{FOLDER}/ask.sh", inventory)  # waits
    assert answer(key_of(folder)) == demo.answers()["Hello!"]
    assert httpx.get(f"http://{HEAD}:{ENGINE_PORT}/v1/models", trust_env=False).status_code == 401
    # The key is in files alone.
    for node in ("node1", "node2"):
        assert key_of(folder) not in on_node(node, "docker inspect headfirst-engine", inventory)
    for node, file in (("node1", "1-node1.yaml"), ("node2", "2-node2.yaml")):
        compose(node, f"-f {file} down", inventory)
        assert on_node(node, "docker ps --all --quiet", inventory) == ""


def test_one_host_with_engine_and_page(inventory: Path, tmp_path: Path) -> None:
    alone = tmp_path / "one.ini"
    text = inventory.read_text()
    start, end = text.index("\n[workers]"), text.index("\n[all:vars]")
    alone.write_text(text[:start] + text[end:])
    folder = render(alone, tmp_path / "out")
    names = {path.name for path in folder.iterdir()}
    assert names == {"make-secrets.sh", "compose.yaml", "ask.sh", "secrets"}
    bring(folder, "node1", inventory)
    # The page of `deploy up` left its accounts, and so another password.
    on_node("node1", "rm -rf /var/lib/headfirst/webui", inventory)
    # It returns when the engine is healthy, since the page waits for it.
    compose("node1", "up -d", inventory)
    state = "docker inspect --format '{{.State.Health.Status}}' headfirst-engine"
    assert on_node("node1", state, inventory) == "healthy"
    assert answer(key_of(folder)) == demo.answers()["Hello!"]
    page = httpx.Client(base_url=f"http://{HEAD}:{PAGE_PORT}", timeout=60, trust_env=False)
    on_node(
        "node1",
        f"timeout 300 sh -c 'until curl -sf http://{HEAD}:{PAGE_PORT}/ready; do sleep 2; done'",
        inventory,
    )
    password = (folder / "secrets" / "webui-admin-password").read_text().strip()
    login = {"email": "admin@headfirst.local", "password": password}
    signed_in = page.post("/api/v1/auths/signin", json=login)
    assert signed_in.status_code == 200, signed_in.text
    token = signed_in.json()["token"]
    asked = {"model": "headfirst-demo", "messages": [{"role": "user", "content": "Hello!"}], "stream": False}
    said = page.post("/api/chat/completions", json=asked, headers={"Authorization": f"Bearer {token}"}).json()
    assert said["choices"][0]["message"]["content"] == demo.answers()["Hello!"]
    compose("node1", "down", inventory)
    assert on_node("node1", "docker ps --all --quiet", inventory) == ""
