"""MkDocs hook: links that are right in the repository are right in the site.

Headings get the anchors that GitHub gives them, in Chinese too. The line that leads from a page to its
translation is left out: the theme has a switch of languages. A link to a file outside docs/ becomes one to
the repository.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from pymdownx.slugs import slugify

_OTHER_LANGUAGE = re.compile(r"^\[(简体中文|English)\]\([^)]*\)\n", re.MULTILINE)
_LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """The configuration with GitHub's anchors."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """The page's Markdown with the links of the site."""
    docs = Path(config.docs_dir)
    repository = config.extra["repository"]
    folder = posixpath.dirname(page.file.src_uri)

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(docs.name, folder, match[1]))
        if target.startswith(f"{docs.name}/") or not (docs.parent / target).exists():
            return match[0]  # a page, or a link that the strict build refuses
        return f"]({repository}/blob/main/{target}{match[2] or ''})"

    return _LINK.sub(link, _OTHER_LANGUAGE.sub("", markdown, count=1))
