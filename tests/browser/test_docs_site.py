"""The site of docs/, opened from a folder: no server, no network."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs_site import built
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("site"))


@pytest.mark.parametrize(
    ("start", "words", "found"),
    [
        ("index.html", "Grafana", "monitoring.html"),
        ("zh-CN/index.html", "权重", "zh-CN/weights.html"),
        ("how-to/one-server.html", "hang_timeout", "inventory.html"),
    ],
)
def test_a_word_is_found(site: Path, page: Page, start: str, words: str, found: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / start).as_uri())
    page.keyboard.press("/")
    page.keyboard.type(words)
    link = page.locator(f".md-search-result__link[href^='{(site / found).as_uri()}']").first
    expect(link).to_be_visible(timeout=30_000)
    link.click()
    expect(page.locator("article")).to_contain_text(words)
    assert page.url.startswith(site.as_uri())
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []


def test_the_front_page_has_a_picture_and_the_command(site: Path, page: Page) -> None:
    for name in ("index.html", "zh-CN/index.html"):
        page.goto((site / name).as_uri())
        expect(page.locator("article pre").first).to_contain_text("./deploy up")
        picture = page.locator("article img").first
        expect(picture).to_be_visible()
        assert picture.evaluate("image => image.complete && image.naturalWidth > 100")
