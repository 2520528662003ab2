#!/usr/bin/env python3
"""Writes the ids of the rules into docs/diagnose.md and its translation. `--check` only compares, for CI.

A row is `| number | failure | checked | diagnosed | elsewhere, or why not |`; the third and the fourth column
come from the rules, the others are written by hand.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import generated
from ansible_collections.headfirst.serving.plugins.plugin_utils import (
    check_differences,
    check_findings,
    check_rules,
    comm_rules,
    engine_log_rules,
)
from headfirst.decide import engines

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = (DOCS / "diagnose.md", DOCS / "zh-CN" / "diagnose.md")
_ROW = re.compile(r"^\| (\d+) \|(.*\|.*\|.*\|.*)\|$", re.MULTILINE)
_CHECKED, _DIAGNOSED, _ELSEWHERE = 1, 2, 3


def main() -> int:
    """Write the pages, or with --check return 1 when one is not up to date."""
    pages = {path: path.read_text("utf-8") for path in PAGES}
    messages = [f"{path}: {problem}" for path, page in pages.items() for problem in problems(page)]
    if messages:
        print(*messages, sep="\n", file=sys.stderr)
        return 1
    return generated.write({path: written(page) for path, page in pages.items()})


def problems(page: str) -> list[str]:
    """What only a person can mend: rows that are missing or double, or say nothing."""
    rows = [int(row[1]) for row in _ROW.finditer(page)]
    numbers = [*range(1, max(rows, default=0) + 1)]
    messages = [] if rows == numbers else [f"the rows are {rows}, not 1 to {len(numbers)}"]
    unknown = sorted((checked().keys() | diagnosed().keys()) - {*numbers})
    messages += [f"rules name failures that do not exist: {unknown}"] if unknown else []
    for row in _ROW.finditer(written(page)):
        cells = _cells(row[2])
        if not cells[0] or not any(cells[1:]):
            messages.append(f"failure {row[1]} is neither checked nor diagnosed, and no reason is given")
    return messages


def written(page: str) -> str:
    """The page with the ids that the rules have."""
    columns = {_CHECKED: checked(), _DIAGNOSED: diagnosed()}

    def row(match: re.Match[str]) -> str:
        cells = _cells(match[2])
        for column, ids in columns.items():
            cells[column] = ", ".join(f"`{id}`" for id in ids.get(int(match[1]), []))
        return f"| {match[1]} | {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")

    return _ROW.sub(row, page)


def checked() -> dict[int, list[str]]:
    """Number of a failure → rules of `deploy check`."""
    rules = [(rule.id, rule.failures) for rule in check_rules.RULES]
    rules += [(difference.id, difference.failures) for difference in check_differences.DIFFERENCES]
    return _by_number([*rules, *check_findings.COMPARED.items(), *comm_rules.RULES.items()])


def diagnosed() -> dict[int, list[str]]:
    """Number of a failure → rules of `deploy diagnose`: on logs of all engines, of one engine, on states."""
    logs = [{}, *(engine.log() for engine in map(engines.get, engines.names()))]
    lines = [(rule.id, rule.failures) for log in logs for rule in engine_log_rules.profile(log).rules]
    states = [(rule.id, rule.failures) for rule in engine_log_rules.conditions().values()]
    return _by_number([*lines, *states])


def _by_number(rules: Iterable[tuple[str, Iterable[int]]]) -> dict[int, list[str]]:
    ids = defaultdict(list)
    for id, numbers in rules:
        for number in numbers:
            if id not in ids[number]:
                ids[number].append(id)
    return ids


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.split("|", _ELSEWHERE)]


if __name__ == "__main__":
    sys.exit(main())
