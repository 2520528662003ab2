#!/usr/bin/env python3
"""Runs every check of the checkout but ansible-lint, or with --fix writes what programs can write.

Usage: python tools/lint.py [--fix]
A check that fails hides no other: the last lines name all that failed, and what `./test fix` writes of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docs_translations

ROOT = Path(__file__).resolve().parent.parent
_SCRIPTS = "git ls-files -z --cached --others --exclude-standard deploy test .ci/run '*.sh'"
# With a cache of its own: the other mypy runs at the same time.
_BESIDE = (
    "MYPYPATH=py:tests:benchmarks mypy --cache-dir=.mypy_cache/beside --follow-imports=silent "
    "molecule/shared/*.py benchmarks/*.py"
)
# Command of a check → the command that writes what it requires, "" where only a person can.
# Defaults come before the pages that are made of them.
CHECKS = {
    "mypy": "",
    _BESIDE: "",
    "python tools/role_defaults.py": "python tools/role_defaults.py --fix",
    "ruff check .": "ruff check --fix --exit-zero .",
    "ruff format --check .": "ruff format .",
    "yamllint --strict .": "",
    f"{_SCRIPTS} | xargs -0 shellcheck": "",
    "python tools/language.py": "",
    "python tools/line_budget.py": "",
    "python tools/role_readme.py --check": "python tools/role_readme.py",
    "python tools/inventory_doc.py --check": "python tools/inventory_doc.py",
    "python tools/failure_table.py --check": "python tools/failure_table.py",
    "python tools/presets_table.py --check": "python tools/presets_table.py",
    "python tools/reference_docs.py --check": "python tools/reference_docs.py",
    "python tools/pictures.py --check": "python tools/pictures.py",
    "python tools/docs_translations.py --check": "",
}


def failed(commands: Sequence[str], at_once: int) -> list[str]:
    """Run all commands, `at_once` in parallel, and print what each printed; return those that failed."""
    with ThreadPoolExecutor(at_once) as pool:
        passed = pool.map(_run, commands)
        return [command for command, good in zip(commands, passed, strict=True) if not good]


def _run(command: str) -> bool:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=ROOT,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(f"$ {command}\n{done.stdout}", end="", flush=True)
    return done.returncode == 0


def main() -> int:
    """Run the checks, or the programs that write; return the exit code."""
    if "--fix" in sys.argv:
        translated = docs_translations.fresh()
        wrong = failed([fix for fix in CHECKS.values() if fix], 1)
        docs_translations.renew(translated)  # a program writes both languages
    else:
        wrong = failed([*CHECKS], os.cpu_count() or 1)
    lines = [f"  {command}{'   (`./test fix` writes it)' * bool(CHECKS.get(command))}" for command in wrong]
    if wrong:
        print("Failed, with its output above:", *lines, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
