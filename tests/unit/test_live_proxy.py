"""No request to an address of the cluster goes through a proxy of the environment, on any machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import headfirst
import pytest
import yaml
from headfirst.common.errors import HeadfirstError
from headfirst.control.live.chat import Chat
from headfirst.control.live.ssh_access import tunnel
from serving import QuietHandler, serving

PACKAGE = Path(headfirst.__file__).parent
ROOT = Path(__file__).resolve().parents[2]
PUBLIC = ("control/bundle", "control/checkpoints")
"""Packages that ask hubs and package mirrors, to which a proxy may be the only way."""
REQUESTS = {"Client", "AsyncClient", "get", "post", "put", "delete", "head", "request", "stream"}


class _Server(QuietHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_POST = do_GET


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A service at the end of a tunnel, and a proxy that nothing answers at."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(_Server) as url:
        yield url


def test_a_question_does_not_go_through_the_proxy(url: str) -> None:
    with Chat(url, "tiny", "key") as chat:
        assert list(chat.ask("Hello")) == []


def test_a_service_is_asked_without_the_proxy(url: str) -> None:
    with tunnel.local_client(url, "key") as client:
        assert tunnel.ask(client, "GET", "/health") == (200, b"")
        assert client.headers["Authorization"] == "Bearer key"


def test_a_service_that_is_not_there_is_named_as_before() -> None:
    with Chat("http://127.0.0.1:1", "tiny", None) as chat, pytest.raises(HeadfirstError, match="not answer"):
        list(chat.ask("Hello"))


def test_every_other_client_leaves_the_proxy_out_too() -> None:
    calls = [
        (path.relative_to(PACKAGE), node)
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parent.as_posix() not in PUBLIC
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) == "httpx"
        and node.func.attr in REQUESTS
    ]
    assert any(str(path) == "control/live/ssh_access/tunnel.py" for path, _node in calls)
    through_the_proxy = [
        f"{path}:{node.lineno}"
        for path, node in calls
        if not any(word.arg == "trust_env" and ast.unparse(word.value) == "False" for word in node.keywords)
    ]
    assert through_the_proxy == []


def test_roles_ask_services_without_the_proxy_and_without_a_netrc() -> None:
    asked = [
        (path.name, options)
        for folder in ("roles", "playbooks")
        for path in (ROOT / folder).rglob("*.yml")
        for options in _options_of(yaml.safe_load(path.read_text()), "ansible.builtin.uri")
    ]
    assert len(asked) >= 3
    for name, options in asked:
        assert (name, options.get("use_proxy"), options.get("use_netrc")) == (name, False, False)


def _options_of(node: Any, module: str) -> Iterator[dict[str, Any]]:
    """The options of each task of `module` anywhere below a document's node."""
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _options_of(value, module)
    if isinstance(node, dict) and module in node:
        yield node[module]
