"""Where apt takes packages from. Python 3.8+."""

from __future__ import annotations

import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

FOLDER = "/etc/apt/sources.list.d"


def has(source: HostSource, repository: str, excluded: str) -> bool:
    """Whether a file of apt sources but `excluded` has the repository, or one below it."""
    below = repository.rstrip("/") + "/"
    return bool(repository) and any(below in line + "/" for line in _lines(source, excluded))


def _lines(source: HostSource, excluded: str) -> t.List[str]:
    """Lines, without comments, of what apt reads but `excluded`: apt refuses one repository with two keys."""
    names = [name for name in source.names(FOLDER) if name.endswith((".list", ".sources"))]
    paths = ["/etc/apt/sources.list", *(f"{FOLDER}/{name}" for name in names if not name.startswith("."))]
    texts = (source.read(path) for path in paths if path != excluded)
    return [line for text in texts for line in text.splitlines() if not line.lstrip().startswith("#")]
