"""MkDocs hook: links that are right in the repository are right in the site.

Headings get the anchors that GitHub gives them, in Chinese too. The line that leads from a page to its
translation is left out: the theme has a switch of languages. A link to a file outside docs/ becomes one to
the repository. The JSON schemas are files of the site alone, linked by the sections of their types.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File
from pymdownx.slugs import slugify
from reference import outputs

_JSON_PAGE = "reference/json.md"
_SCHEMA = "schemas/{}.json"
_OTHER_LANGUAGE = re.compile(r"^\[(简体中文|English)\]\([^)]*\)\n", re.MULTILINE)
_LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """The configuration with GitHub's anchors."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


@event_priority(-200)  # after the plugin i18n, which takes files that are in docs/ alone
def on_files(files: Any, *, config: Any) -> Any:
    """The files of docs/ and the JSON schemas."""
    for name, schema in outputs.schemas().items():
        path = posixpath.join(posixpath.dirname(_JSON_PAGE), _SCHEMA.format(name))
        files.append(File.generated(config, path, content=json.dumps(schema, indent=1, ensure_ascii=False)))
    return files


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

    if page.file.src_uri == _JSON_PAGE:
        for name in outputs.schemas():
            heading = f"\n## {name}\n"
            markdown = markdown.replace(heading, f"{heading}\n[JSON schema]({_SCHEMA.format(name)})\n")
    return _LINK.sub(link, _OTHER_LANGUAGE.sub("", markdown, count=1))
