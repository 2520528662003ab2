"""Lines of data/failure_lines: those that a failure rule must match, and those that it must not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import FAMILIES, profile
from headfirst.decide import engines

DATA = Path(__file__).parent / "data"
_NOT = "not: "
PROFILES = {"generic": profile({}), **{name: profile(engines.get(name).log()) for name in engines.names()}}


def sections(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Heading and lines of each section that begins with `## `."""
    for section in re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading, *lines = section.rstrip().splitlines()
        yield heading, lines


_BY_FILE = {
    path.stem: {heading.partition(": ")[0]: (heading, lines) for heading, lines in sections(path)}
    for path in (DATA / "failure_lines").glob("*.txt")
}
# Name of the profile -> rule of its file -> heading, with public reports after a colon, and lines.
BY_PROFILE = {
    "generic": {rule: its for name in FAMILIES for rule, its in _BY_FILE[name].items()},
    **{name: _BY_FILE[name] for name in engines.names()},
}


def matched(name: str, rule: str) -> list[str]:
    """The lines that a rule of the profile `name` must match."""
    return [line for line in _entry(name, rule)[1] if not line.startswith(_NOT)]


def unmatched(name: str, rule: str) -> list[str]:
    """The lines that it must not match."""
    return [line.removeprefix(_NOT) for line in _entry(name, rule)[1] if line.startswith(_NOT)]


def reported(name: str, rule: str) -> bool:
    """Whether its lines are of public reports that their heading names."""
    return ": " in _entry(name, rule)[0]


def _entry(name: str, rule: str) -> tuple[str, list[str]]:
    return BY_PROFILE[name].get(rule) or BY_PROFILE["generic"][rule]
