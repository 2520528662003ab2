"""Where something is in the inventory's files: Ansible's parser forgets lines, people need them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class HostLine:
    """A host named in a section of an INI inventory."""

    group: str
    host: str
    where: str


def files_of(inventories: tuple[Path, ...]) -> list[Path]:
    """Each inventory's own files, then group_vars and host_vars beside it."""
    found: list[Path] = []
    for inventory in inventories:
        folder = inventory if inventory.is_dir() else inventory.parent
        found += sorted(p for p in folder.iterdir() if p.is_file()) if inventory.is_dir() else [inventory]
        for kind in ("group_vars", "host_vars"):
            found += sorted(p for p in (folder / kind).rglob("*") if p.is_file())
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text()
    except UnicodeDecodeError:  # an executable or vaulted inventory has no lines to show
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith(("#", ";")):
            yield number, line


def locate_variable(name: str, inventories: tuple[Path, ...]) -> str | None:
    """`file:line` of the first assignment of `name`, or None when it is in no file (an extra variable)."""
    assignment = re.compile(rf"(?:^|[\s{{,])[\"']?{re.escape(name)}[\"']?\s*[=:]")
    for path in files_of(inventories):
        for number, line in _lines(path):
            if assignment.search(line):
                return f"{path}:{number}"
    return None
