"""Where a default stands in a file of the checkout: the characters that are replaced when it changes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

_DOCUMENTATION = re.compile(r'^DOCUMENTATION = r"""$(.*?)^"""$', re.MULTILINE | re.DOTALL)


class TextSpan(NamedTuple):
    """The characters of a value in a file, from `start` to `end`, and what must stand there."""

    path: Path
    start: int
    end: int
    text: str


class DefaultDifference(NamedTuple):
    """A sentence about what is wrong, and the place that follows; None: only a person can write it."""

    sentence: str
    place: TextSpan | None = None

    def __str__(self) -> str:
        """FILE:LINE: SENTENCE, or the sentence alone."""
        if self.place is None:
            return self.sentence
        line = self.place.path.read_text("utf-8").count("\n", 0, self.place.start) + 1
        return f"{self.place.path}:{line}: {self.sentence}"


def in_yaml(path: Path, keys: Iterable[str], value: Any) -> TextSpan | None:
    """The value below `keys` in a YAML file, or in a module's documentation; None: a block, or none."""
    start, text = yaml_of(path)
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in keys:
        node = next((item for name, item in node.value if name.value == key), None)
        if node is None:
            return None
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        return None
    written = yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("\n")
    return TextSpan(
        path, start + node.start_mark.index, start + node.end_mark.index, written.removesuffix("\n...")
    )


def yaml_of(path: Path) -> tuple[int, str]:
    """Where the YAML begins in a file, all of it or the documentation of a module, and its text."""
    source = path.read_text("utf-8")
    match = _DOCUMENTATION.search(source)
    return (match.start(1), match[1]) if match else (0, source)


def write(places: Iterable[TextSpan]) -> None:
    """Write what must stand at each place, from the end of each file."""
    for path, start, end, text in sorted({*places}, reverse=True):
        source = path.read_text("utf-8")
        path.write_text(source[:start] + text + source[end:], "utf-8")
