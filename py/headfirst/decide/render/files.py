"""What a target makes: texts by their paths in one folder."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """A text and the mode of its file."""

    text: str
    mode: int = 0o644


Files = dict[str, File]


def script(text: str) -> File:
    """A program that people start."""
    return File(text, 0o755)


def numbered(host: str, index: int, count: int) -> str:
    """The name, without its end, of the file of a host: in the order in which they are used."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", host)
    return f"{index + 1:0{len(str(count))}}-{plain}"
