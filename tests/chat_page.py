"""Open WebUI as a person sees it, driven with playwright (selectors of Open WebUI 0.12)."""

from __future__ import annotations

import re

from playwright.sync_api import Error, Page, expect

ANSWER_TIMEOUT_MS = 120_000


class ChatPage:
    """One browser page on the chat page at `url`."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self._url = url

    def open(self) -> None:
        """Go to the page; once more where the browser gave up because a network of this machine changed."""
        try:
            self.page.goto(self._url)
        except Error:
            self.page.goto(self._url)

    def sign_in(self, email: str, password: str) -> None:
        """Fill in the form, and close the dialog that greets at the first sign-in."""
        self.page.locator("input#email").fill(email)
        self.page.locator("input#password").fill(password)
        self.page.locator("button[type=submit]").click()
        greeting = self.page.get_by_role("button", name=re.compile("Okay, Let.s Go!"))
        expect(greeting.or_(self.page.locator("#chat-input")).first).to_be_visible(timeout=30_000)
        if greeting.is_visible():
            greeting.click()

    def choose_model(self, model: str) -> None:
        """Pick the model by its ID."""
        self.page.locator('button[id^="model-selector-"][id$="-button"]:visible').first.click()
        self.page.locator(f'[role=option][data-value="{model}"]').click()

    def ask(self, prompt: str) -> str:
        """Send the prompt; return the finished answer."""
        self.page.locator("#chat-input").click()
        self.page.keyboard.type(prompt)
        self.page.locator("#send-message-button").click()
        # The button to copy an answer appears when the answer is complete.
        expect(self.page.locator("button.copy-response-button").last).to_be_visible(timeout=ANSWER_TIMEOUT_MS)
        return self.page.locator("#response-content-container").last.inner_text().strip()
