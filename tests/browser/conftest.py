"""A browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, sync_playwright


@pytest.fixture
def page() -> Iterator[Page]:
    """A page of Debian's Chromium, which ./test installs."""
    with sync_playwright() as playwright:
        # Chromium refuses its sandbox to root.
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()
