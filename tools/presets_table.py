#!/usr/bin/env python3
"""Writes the tables of presets into docs/presets.md and its translation. `--check` only compares, for CI."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import generated
from headfirst.decide import engines
from headfirst.decide.engines import presets
from headfirst.decide.engines.presets import ArgumentRule, LayoutRule
from headfirst.decide.model.families import families

DOCS = Path(__file__).resolve().parent.parent / "docs"
HEADS = {
    DOCS / "presets.md": (
        "family",
        "when",
        "arguments",
        "source",
        "every model",
        "unless `parsers=none`",
        "where plain sizes do not work",
        "always",
    ),
    DOCS / "zh-CN" / "presets.md": (
        "系列",
        "何时",
        "参数",
        "来源",
        "所有模型",
        "除非 `parsers=none`",
        "普通的并行大小不可行时",
        "始终",
    ),
}
_TABLE = re.compile(
    r"(<!-- presets: written by tools/presets_table.py -->\n).*?(<!-- end of presets -->)", re.S
)


def main() -> int:
    """Write the pages, or with --check return 1 when one is not up to date."""
    pages = {path: path.read_text("utf-8") for path in HEADS}
    return generated.write(
        {
            path: _TABLE.sub(lambda match, path=path: match[1] + tables(path) + match[2], page)
            for path, page in pages.items()
        }
    )


def tables(path: Path) -> str:
    """One table an engine, with the words of the page's language."""
    family, when, arguments, source, every, any_preset, fallback, always = HEADS[path]
    text = ""
    for name in engines.names():
        of = presets.of(name)
        rules = [(rule, _when_shared(rule, fallback, always)) for rule in of.layouts]
        rules += [(rule, _when(rule, any_preset)) for rule in of.rules]
        rows = [
            f"| {_families(rule, every)} | {condition} "
            f"| `{' '.join(presets.words(rule.arguments))}` | {_linked(rule.source)} |\n"
            for rule, condition in rules
        ]
        title = engines.get(name).title
        text += f"\n### {title}\n\n| {family} | {when} | {arguments} | {source} |\n|---|---|---|---|\n"
        text += "".join(rows)
    return text + "\n"


def _when_shared(rule: LayoutRule, fallback: str, always: str) -> str:
    """When a layout is taken, with what the model must have."""
    presets_of = [f"`preset={preset}`" for preset in rule.presets]
    presets_of += [always] * rule.always + [fallback] * rule.fallback
    needs = ", ".join(need.replace("_", " ") for need in rule.needs)
    return ", ".join(presets_of) + (f" ({needs})" if needs else "")


def _linked(source: str) -> str:
    """The address of a source by its last part that states something, and what follows it."""
    address, _, rest = source.partition(" ")
    label = address.rstrip("/").rpartition("/")[2]
    for suffix in (".yaml", ".md", ".html"):
        label = label.removesuffix(suffix)
    return f"[{label}]({address}) {rest}".strip()


def _families(rule: ArgumentRule | LayoutRule, every: str) -> str:
    titles = {family.name: family.title for family in families()}
    return ", ".join(titles[name] for name in rule.families) or every


def _when(rule: ArgumentRule, any_preset: str) -> str:
    needs = [rule.compute_capability] if rule.compute_capability else []
    needs += [need.replace("_", " ") for need in rule.needs]
    needs += ["offered"] if rule.offered else []
    chosen = ", ".join(f"`preset={preset}`" for preset in rule.presets) or any_preset
    if rule.always:
        chosen = ", ".join(f"`task={task}`" for task in rule.tasks)
    return chosen + (f" ({', '.join(needs)})" if needs else "")


if __name__ == "__main__":
    sys.exit(main())
