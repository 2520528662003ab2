"""Lint runs all checks and names all that failed; `./test fix` runs what writes."""

from __future__ import annotations

import sys

import lint
import pytest


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = {"echo first; false": "", "true": "", "echo second; exit 2": "echo writes"}
    monkeypatch.setattr(lint, "CHECKS", checks)


@pytest.mark.usefixtures("checks")
def test_all_checks_run_and_all_that_failed_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["lint.py"])
    assert lint.main() == 1
    printed = capsys.readouterr()
    assert "first\n" in printed.out and "second\n" in printed.out
    assert printed.err.splitlines()[1:] == [
        "  echo first; false",
        "  echo second; exit 2   (`./test fix` writes it)",
    ]


@pytest.mark.usefixtures("checks")
def test_fix_runs_what_writes_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["lint.py", "--fix"])
    assert lint.main() == 0
    assert capsys.readouterr().out == "$ echo writes\nwrites\n"


def test_a_command_that_fails_within_a_pipe_fails() -> None:
    assert lint.failed(["false | cat"], 1) == ["false | cat"]


def test_every_program_that_compares_a_file_is_run() -> None:
    texts = {path.name: path.read_text("utf-8") for path in (lint.ROOT / "tools").glob("*.py")}
    tools = {name for name, text in texts.items() if "generated.write(" in text or '"--check"' in text}
    assert len(tools) >= 8
    needs_torch, library = "catalogue_sizes.py", "generated.py"
    assert {name for name in tools if name not in " ".join(lint.CHECKS)} == {needs_torch, library}
