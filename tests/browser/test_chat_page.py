"""What a person does first: sign in, ask, read the model's answer."""

from __future__ import annotations

import pytest
from chat_page import ChatPage
from headfirst.control import demo
from playwright.sync_api import Page, expect
from readme_lab import Service

pytestmark = pytest.mark.browser


def test_sign_in_ask_and_read_the_answer(service: Service, page: Page) -> None:
    chat = ChatPage(page, service.url)
    chat.open()
    chat.sign_in(service.email, service.password)
    chat.choose_model(service.model)
    assert chat.ask("Hello!") == demo.answers()["Hello!"]


def test_nobody_can_sign_up(service: Service, page: Page) -> None:
    ChatPage(page, service.url).open()
    expect(page.locator("input#email")).to_be_visible(timeout=30_000)
    expect(page.get_by_text("Sign up", exact=True)).to_have_count(0)


def test_a_wrong_password_is_refused(service: Service, page: Page) -> None:
    chat = ChatPage(page, service.url)
    chat.open()
    page.locator("input#email").fill(service.email)
    page.locator("input#password").fill("not the password")
    page.locator("button[type=submit]").click()
    expect(page.get_by_text("password provided is incorrect")).to_be_visible(timeout=30_000)
