"""Where apt takes packages from. Python 3.8+."""

from __future__ import annotations

import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils.host_source import Source

FOLDER = "/etc/apt/sources.list.d"


def lines(source: Source, own: str) -> t.List[str]:
    """Lines, without comments, of what apt reads but `own`: apt refuses one repository with two keys."""
    names = [name for name in source.names(FOLDER) if name.endswith((".list", ".sources"))]
    paths = ["/etc/apt/sources.list", *(f"{FOLDER}/{name}" for name in names if not name.startswith("."))]
    found = [line for path in paths if path != own for line in source.read(path).splitlines()]
    return [line for line in found if not line.lstrip().startswith("#")]
