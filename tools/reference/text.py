"""What the generated pages share: their head, and cells of tables."""

from __future__ import annotations


def generated(title: str, source: str) -> str:
    """The head of a page; `source` is what a person changes instead."""
    return f"# {title}\n\n<!-- Written by tools/reference_docs.py from {source}. Do not edit. -->\n"


def cell(text: str) -> str:
    """Text that fits into one cell of a table."""
    return " ".join(text.replace("|", "\\|").split())
