"""The site of the documentation builds without a warning, in two languages, and loads nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from docs_site import built
from documented import ROOT
from reference import outputs

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("site"))


def test_each_page_is_there_in_both_languages(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix(".html")
        if name.parts[0] != "zh-CN":
            assert (site / name).exists()
            assert (site / "zh-CN" / name).exists()
    english, chinese = ((site / name).read_text("utf-8") for name in ("concepts.html", "zh-CN/concepts.html"))
    assert '<html lang="en"' in english
    assert '<html lang="zh"' in chinese
    assert "工作原理" in chinese


def test_the_switch_of_languages_leads_to_the_same_page(site: Path) -> None:
    assert re.search(
        r'href="[^"]*zh-CN/router\.html" hreflang="zh-CN"', (site / "router.html").read_text("utf-8")
    )
    assert re.search(
        r'href="\.\./router\.html" hreflang="en"', (site / "zh-CN/router.html").read_text("utf-8")
    )


def test_links_out_of_docs_lead_to_the_repository(site: Path) -> None:
    for page in ("failures.html", "zh-CN/failures.html"):
        assert "/blob/main/roles/engine/README.md" in (site / page).read_text("utf-8")
    # The line that leads to the translation on GitHub is not on the page.
    assert "简体中文</a></p>" not in (site / "router.html").read_text("utf-8")


def test_a_page_that_is_named_is_linked(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = re.sub(r"<(pre|a)\b.*?</\1>", "", page.read_text("utf-8"), flags=re.DOTALL)
        assert re.findall(r"\bdocs/[\w/-]+\.md\b", text) == [], page.relative_to(site)


@pytest.mark.parametrize("name", ["reference/json.html", "zh-CN/reference/json.html"])
def test_each_type_that_is_printed_links_its_schema(site: Path, name: str) -> None:
    page = site / name
    links = re.findall(r'href="([^"]*schemas/\w+\.json)"', page.read_text("utf-8"))
    linked = [json.loads((page.parent / link).read_text("utf-8")) for link in links]
    assert sorted(schema["title"] for schema in linked) == sorted(outputs.schemas())


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=["']?(https?:)?//[^"'> ]*""")
    for page in site.rglob("*.html"):
        assert [found[0] for found in loaded.finditer(page.read_text("utf-8"))] == [], page
    # The theme asks GitHub's API about a repository that is its repo_url.
    assert "api.github.com/repos/headfirst" not in (site / "index.html").read_text("utf-8")
    assert "repo_url" not in (ROOT / "mkdocs.yml").read_text("utf-8").replace("As repo_url", "")


def test_every_section_of_the_navigation_is_translated() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    (languages,) = [plugin["i18n"]["languages"] for plugin in config["plugins"] if "i18n" in plugin]

    def titles(items: list[object]) -> set[str]:
        sections = [item for item in items if isinstance(item, dict)]
        return {
            title
            for section in sections
            for name, inside in section.items()
            for title in (name, *titles(inside))
        }

    assert languages[1]["nav_translations"].keys() == titles(config["nav"])
