"""The README's lab behind the proxy: keys with names, the chat page over TLS."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from chat_page import ChatPage
from headfirst.control import demo
from headfirst.decide.cluster.ports import PROXY_METRICS_PORT
from headfirst.decide.cluster.settings import ClusterSettings, ServiceSettings
from playwright.sync_api import Page, sync_playwright
from readme_lab import Service, on_node, succeeds, summary_of

PLAIN_PORTS = (ServiceSettings().engine_port, ClusterSettings().webui_port, PROXY_METRICS_PORT)
pytestmark = [pytest.mark.lab, pytest.mark.browser]
NAME, ADDRESS = "llm.test", "10.213.0.11"
SETTINGS = ["tls=local-ca", f"tls_names={NAME}", "proxy_image_source=build"]
OPTIONS = [word for setting in SETTINGS for word in ("-e", setting)]


@dataclass(frozen=True)
class Secured:
    """What `deploy up` printed about the lab behind the proxy."""

    page: str
    ca: Path


@pytest.fixture(scope="module")
def secured(service: Service) -> Secured:
    """The lab that is up, with the proxy in front of it."""
    found = summary_of("up", options=OPTIONS)
    assert found["services"][0]["api"] == [f"https://{NAME}/v1"]
    return Secured(found["chat_page"], Path(found["ca"]))


@pytest.fixture
def page(secured: Secured, tmp_path: Path) -> Iterator[Page]:
    """A page of a browser that trusts the authority and resolves the name."""
    store = tmp_path / ".pki" / "nssdb"
    store.mkdir(parents=True)
    certutil = ["certutil", "-d", f"sql:{store}"]
    subprocess.run([*certutil, "-N", "--empty-password"], check=True)
    subprocess.run([*certutil, "-A", "-t", "C,,", "-n", "lab", "-i", str(secured.ca)], check=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", f"--host-resolver-rules=MAP {NAME} {ADDRESS}"],
            env=os.environ | {"HOME": str(tmp_path)},
        )
        yield browser.new_page()
        browser.close()


def api(secured: Secured, key: str) -> httpx.Client:
    context = ssl.create_default_context(cafile=str(secured.ca))
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=f"https://{ADDRESS}", headers=headers, verify=context, trust_env=False)


def keys(verb: str, *options: str) -> str:
    return succeeds("keys", verb, options=[*options, *OPTIONS])


def test_a_key_opens_the_api_until_it_is_revoked(service: Service, secured: Secured) -> None:
    key = json.loads(keys("add", "alice", "--rate", "60/min", "--json"))["key"]
    body = {
        "model": service.model,
        "messages": [{"role": "user", "content": "Hello!"}],
        "stream": True,
        "temperature": 0,
    }
    with api(secured, key) as client:
        with client.stream("POST", "/v1/chat/completions", json=body, timeout=60) as answer:
            lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
        assert (answer.status_code, lines[-1]) == (200, "[DONE]")
        text = "".join(json.loads(line)["choices"][0]["delta"].get("content") or "" for line in lines[:-1])
        assert text == demo.answers()["Hello!"]
        keys("revoke", "alice")
        # On the connection that the key opened.
        refused = client.get("/v1/models")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    log = on_node("node1", "docker logs headfirst-proxy 2>&1")
    assert '"key":"alice"' in log
    assert key not in log


def test_only_keys_with_names_are_accepted(service: Service, secured: Secured) -> None:
    for key in ("", "sk-wrong", service.api_key):
        with api(secured, key) as client:
            assert client.get("/v1/models").status_code == 401


@pytest.mark.parametrize("port", PLAIN_PORTS)
def test_the_plain_ports_are_closed_to_strangers(secured: Secured, port: int) -> None:
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{ADDRESS}:{port}/", timeout=5, trust_env=False)
    # The other host of the cluster is none.
    fetch = f"import urllib.request as u; u.urlopen('http://{ADDRESS}:{port}/metrics', timeout=5)"
    asked = on_node("node2", f'python3 -c "{fetch}" 2>&1 | tail -1')
    assert "refused" not in asked and "unreachable" not in asked


def test_a_chat_over_tls_and_a_websocket(service: Service, secured: Secured, page: Page) -> None:
    sockets: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    chat = ChatPage(page, secured.page)
    chat.open()
    chat.sign_in(service.email, service.password)
    chat.choose_model(service.model)
    assert chat.ask("Hello!") == demo.answers()["Hello!"]
    assert any(url.startswith(f"wss://{NAME}/ws/") for url in sockets), sockets


def test_the_second_run_changes_nothing(secured: Secured) -> None:
    assert summary_of("up", options=["-t", "host,webui,proxy", *OPTIONS])["changed"] == 0
