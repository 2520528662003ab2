"""ssh's own reading of its configuration: `ssh -G` resolves jump hosts, keys, ports, Include and Match."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# What `ssh -G` leaves for the moment of connecting.
_TOKEN = re.compile(r"%([%hnpruCdl])")

Settings = Mapping[str, list[str]]


class BadOptionError(Exception):
    """ssh refuses an option or its configuration; the text is its own."""


def settings(words: Sequence[str]) -> Settings:
    """What ssh does when it is called with these words: values by lowercase name of the option."""
    try:
        done = subprocess.run(["ssh", "-G", *words], capture_output=True, text=True, check=False, timeout=30)
    except FileNotFoundError:
        raise BadOptionError("ssh is not installed on this machine") from None
    if done.returncode != 0:
        raise BadOptionError((done.stderr.strip().splitlines() or ["ssh -G fails"])[-1])
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)
    return found


def one(found: Settings, name: str, default: str = "none") -> str:
    """The value of an option that has one."""
    return found.get(name, [default])[0]


def files(found: Settings, name: str, tokens: Mapping[str, str]) -> list[Path]:
    """Paths of an option that takes several, in one line or in several lines."""
    texts = [text for line in found.get(name, []) for text in _split(line) if text != "none"]
    return [Path(expand(text, tokens)).expanduser() for text in texts]


def _split(line: str) -> list[str]:
    """`ssh -G` prints names with spaces unquoted: a line that is a file is one name."""
    return [line] if Path(line).expanduser().exists() else line.split()


def expand(text: str, tokens: Mapping[str, str]) -> str:
    """Put %h, %p, %r and their like in; unknown ones stay."""
    return _TOKEN.sub(lambda match: tokens.get(match.group(1), match.group(0)), text)
