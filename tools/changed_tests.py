#!/usr/bin/env python3
"""Chooses the unit tests of what the working tree changed since it left its upstream branch.

Usage: python tools/changed_tests.py [--record]
Prints a test file a line; what the run takes, and what is left out, go to stderr. A test file is near to a
changed file when it imports it, directly or through others, or has its path. Nearest come first, until they
and lint fill a minute; a test file that has changed runs in any case. Seconds are those of the last run here,
which tests/unit/conftest.py keeps in pytest's cache, else those of tests/unit/data/seconds.json, which
--record writes.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".pytest_cache/v/headfirst/seconds"
RECORD = ROOT / "tests/unit/data/seconds.json"
RECORDED_S = 2.0  # of a file in RECORD, at least; others take UNKNOWN_S
UNKNOWN_S = 0.5
# Of a run on two quiet cores: tools/lint.py, and pytest before its first test.
MINUTE_S, LINT_S, START_S = 60.0, 16.0, 6.0
# Folder → the package that its files are imported from.
PACKAGES = {
    "py/headfirst": "headfirst",
    "plugins": "ansible_collections.headfirst.serving.plugins",
    "tests/unit": "",
    "tests": "",
    "tools": "",
}


def changed(root: Path) -> list[str]:
    """Paths that differ from the merge base with the upstream branch, or from HEAD where there is none."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    upstream = git("rev-parse", "--verify", "--quiet", "@{upstream}") or git(
        "rev-parse", "--verify", "origin/HEAD"
    )
    base = (upstream and git("merge-base", "HEAD", upstream)) or "HEAD"
    names = [*git("diff", "--name-only", base).splitlines()]
    return sorted({*names, *git("ls-files", "--others", "--exclude-standard").splitlines()})


def modules(root: Path) -> dict[str, str]:
    """Dotted name → path of each Python file that tests may import."""
    paths: dict[str, str] = {}
    for folder, package in PACKAGES.items():
        pattern = "*.py" if folder == "tests" else "**/*.py"
        for path in sorted((root / folder).glob(pattern)):
            parts = [package, *path.relative_to(root / folder).with_suffix("").parts]
            name = ".".join(part for part in parts if part and part != "__init__")
            paths.setdefault(name, str(path.relative_to(root)))
    return paths


def imported(text: str, known: Mapping[str, str]) -> Iterator[str]:
    """Paths of the modules that a Python file imports; for `from package import name`, the module `name`."""
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            for full in (name, name.rpartition(".")[0]):
                if full in known:
                    yield known[full]
                    break


def mentioned(path: str, text: str) -> int | None:
    """How many folders above `path` the longest part of it is that a test has as text; None: has none."""
    names = path.split("/")
    for up in range(len(names)):
        part = "/".join(names[: len(names) - up])
        if re.search(rf'[/"\s]{re.escape(part)}[/"\s]', text):
            return up
    return None


def distances(changes: Iterable[str], root: Path) -> dict[str, int]:
    """Unit test file → how many imports or folders it is away from a changed file."""
    known_modules = modules(root)
    texts = {path: (root / path).read_text("utf-8") for path in known_modules.values()}
    users: dict[str, set[str]] = {}
    for path, text in texts.items():
        for target in imported(text, known_modules):
            users.setdefault(target, set()).add(path)
    tests = {path: text.replace('" / "', "/") for path, text in texts.items() if path.startswith("tests/")}
    away: dict[str, int] = {}
    for change in changes:
        if change in texts:
            away[change] = 0
            continue
        change = change.removeprefix("tests/unit/")  # tests name their data from there
        if change.startswith("py/"):  # data of a package: its modules read it
            near = {path: 1 for path in texts if Path(path).parent == Path(change).parent}
        else:
            near = {
                path: up + 1 for path, text in tests.items() if (up := mentioned(change, text)) is not None
            }
        for path, distance in near.items():
            away[path] = min(distance, away.get(path, distance))
    # Breadth first, from the nearest.
    queue = sorted(away, key=lambda path: away[path])
    while queue:
        path = queue.pop(0)
        for user in sorted(users.get(path, ())):
            if away[path] + 1 < away.get(user, sys.maxsize):
                away[user] = away[path] + 1
                queue.append(user)
    return {path: distance for path, distance in away.items() if re.match(r"tests/unit/test_\w+\.py$", path)}


def seconds(cores: int) -> dict[str, float]:
    """Test file → how long it takes: each core imports all files, and runs its part of the tests."""
    seconds = json.loads(RECORD.read_text("utf-8"))
    seconds |= json.loads(CACHE.read_text("utf-8")) if CACHE.exists() else {}
    return {path: collect_s + run_s / cores for path, (collect_s, run_s) in seconds.items()}


def chosen(away: Mapping[str, int], taken: Mapping[str, float], limit: float) -> list[str]:
    """The test files to run, nearest first: those that changed, and others that fit into `limit` seconds."""
    paths: list[str] = []
    for path in sorted(away, key=lambda path: (away[path], taken.get(path, UNKNOWN_S), path)):
        cost = taken.get(path, UNKNOWN_S)
        if away[path] == 0 or cost <= limit:
            paths.append(path)
            limit -= cost
    return paths


def plan(
    away: Mapping[str, int], taken: Mapping[str, float], cores: int, load: float
) -> tuple[list[str], str]:
    """The test files to run, and what a person reads before they do; `load` is what else runs here."""
    run = chosen(away, taken, MINUTE_S - LINT_S - START_S)
    tests_s = START_S + sum(taken.get(path, UNKNOWN_S) for path in run)
    total_s = tests_s + LINT_S
    lines = [f"Takes about {total_s:.0f} s: {len(run)} test files {tests_s:.0f} s, lint {LINT_S:.0f} s."]
    if load > cores / 2:
        lines += [f"This machine is busy (load {load:.1f}): about {total_s * (1 + load / cores):.0f} s."]
    if total_s > MINUTE_S:
        slow = [f"{path} {taken[path]:.0f} s" for path in run if taken.get(path, UNKNOWN_S) > MINUTE_S / 6]
        lines += [f"Longer than a minute, since you changed: {', '.join(slow) or f'{len(run)} test files'}."]
    left = [Path(path).stem for path in sorted(away, key=lambda path: (away[path], path)) if path not in run]
    if left:
        lines += [f"Left out, {len(left)} test files, nearest first: {' '.join(left)}"]
    return run, "\n".join(lines)


def main() -> int:
    """Print the choice, or record how long tests take; return the exit code."""
    if "--record" in sys.argv:
        taken = json.loads(CACHE.read_text("utf-8"))
        slow = sorted((path, s) for path, s in taken.items() if sum(s) >= RECORDED_S)
        rows = [f"{json.dumps(path)}: {json.dumps(s)}" for path, s in slow]
        RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
        return 0
    cores = os.cpu_count() or 1
    run, text = plan(distances(changed(ROOT), ROOT), seconds(cores), cores, os.getloadavg()[0])
    print(text, file=sys.stderr)
    for path in run:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
