"""A browser."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, sync_playwright


@pytest.fixture
def page() -> Iterator[Page]:
    """A page of Debian's Chromium, which apt installs where it is missing."""
    if shutil.which("chromium") is None:
        subprocess.run(["apt-get", "update"], check=True)
        subprocess.run(["apt-get", "install", "--yes", "--no-install-recommends", "chromium"], check=True)
    with sync_playwright() as playwright:
        # Chromium refuses its sandbox to root.
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()
