"""The page of `deploy report` on a phone: nothing is wider than the screen, and the request can be copied."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.control.cli.app import app
from playwright.sync_api import Page
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
PHONE = {"width": 390, "height": 844}


@pytest.mark.parametrize("inventory", ["a100x4.ini", "h100x2-services.ini", "lab-disaggregated.ini"])
def test_the_report_fits_a_phone(
    page: Page, inventory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "report.html"
    done = CliRunner().invoke(app, ["report", str(ROOT / "inventories" / inventory), "-o", str(file)])
    assert done.exit_code == 0, done.output
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.set_viewport_size(PHONE)
    page.goto(file.as_uri())
    assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]
    # The letters of the drawing are as large as those around it: it scrolls in a frame of its own.
    frame = page.locator(".drawing").first
    assert frame.evaluate("element => element.scrollWidth") >= frame.evaluate(
        "element => element.clientWidth"
    )
    size = page.locator("svg text").first.evaluate("element => element.getBoundingClientRect().height")
    assert size >= 10
    assert "Authorization: Bearer $API_KEY" in page.locator("#use ~ pre").first.inner_text()
    assert refused == []
