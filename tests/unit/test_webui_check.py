"""Signing in to Open WebUI, and the change of a password that a rotation left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import HTTPServer
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.modules import webui_check
from serving import QuietHandler, listening

EMAIL = "admin@example.org"


class Page(HTTPServer):
    """One account with a password that its owner can change, as in Open WebUI."""

    password = "old-password"
    may_change = True


class Handler(QuietHandler):
    server: Page

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/api/v1/auths/signin":
            right = body == {"email": EMAIL, "password": self.server.password}
            self.answer(200 if right else 400, {"token": "session"} if right else {"detail": "no"})
        elif self.path == "/api/v1/auths/update/password":
            signed_in = self.headers["Authorization"] == "Bearer session"
            right = signed_in and body["password"] == self.server.password and self.server.may_change
            if right:
                self.server.password = body["new_password"]
            self.answer(200 if right else 400, right)

    def answer(self, status: int, value: Any) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class FailedError(Exception):
    """What fail_json raises here."""


class Module:
    """The part of AnsibleModule that is used."""

    def __init__(self, url: str, password: str, previous: str = "") -> None:
        self.params = {"url": url, "email": EMAIL, "password": password, "previous_password": previous}

    def fail_json(self, msg: str) -> None:
        raise FailedError(msg)


@pytest.fixture
def page() -> Iterator[Page]:
    running = Page(("127.0.0.1", 0), Handler)
    with listening(running):
        yield running


def sign_in(page: Page, password: str, previous: str = "") -> tuple[str, bool]:
    module: Any = Module(f"http://127.0.0.1:{page.server_port}", password, previous)
    return webui_check._sign_in(module)


def test_the_account_gets_the_new_password(page: Page) -> None:
    assert sign_in(page, "old-password", "older") == ("session", False)
    for previous in ("", "wrong"):
        with pytest.raises(FailedError, match="made with another password"):
            sign_in(page, "new-password", previous)
    assert page.password == "old-password"
    assert sign_in(page, "new-password", "old-password") == ("session", True)
    assert page.password == "new-password"
    assert sign_in(page, "new-password", "old-password") == ("session", False)


def test_a_page_that_refuses_the_change_is_an_error_without_the_passwords(page: Page) -> None:
    page.may_change = False
    with pytest.raises(FailedError, match="does not change the password") as caught:
        sign_in(page, "new-password", "old-password")
    assert "new-password" not in str(caught.value)
    assert "old-password" not in str(caught.value)
