"""The page of exit codes, from the errors and from what verbs promise."""

from __future__ import annotations

import inspect
import re
from typing import Any

import typer.main
from headfirst.common import errors
from headfirst.control.cli.app import app

from reference.text import cell, generated
from reference.verbs import commands

INTRODUCTION = """\
Every verb ends with one of these. With `--json` an error is printed as an object, too:
`{"error": {"what", "where", "hint"}}`.
"""
_PROMISE = re.compile(r"Exit code.*", re.DOTALL)


def page() -> str:
    """A table of the codes, and one of the verbs that add a meaning to one."""
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if "exit_code" in vars(kind)]
    lines = [
        generated("Exit codes", "py/headfirst/common/errors.py and the verbs' help"),
        INTRODUCTION,
        "| exit code | error | meaning |",
        "|---|---|---|",
        "| 0 | | Done. |",
    ]
    for kind in sorted(kinds, key=lambda kind: kind.exit_code):
        meaning = (inspect.getdoc(kind) or "").partition("\n\n")[0]
        lines.append(f"| {kind.exit_code} | `{kind.__name__}` | {cell(meaning)} |")
    lines += ["", "## What verbs add", "", "| verb | promise |", "|---|---|"]
    command: Any = typer.main.get_command(app)
    for words, verb in commands(command):
        if promise := _PROMISE.search(verb.help):
            lines.append(f"| `{' '.join(words)}` | {cell(promise[0])} |")
    return "\n".join(lines) + "\n"
