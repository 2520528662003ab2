"""`deploy check` tells a script what it found by its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.cli import check
from headfirst.cli.app import app
from headfirst.run.events import Finding
from headfirst.run.result import RunResult
from typer.testing import CliRunner

WARNING = Finding("weights-on-nfs", "warning", "node1", "/data lies on nfs4", "It is [slow].", "Use a disk.")


@pytest.mark.parametrize(("findings", "code"), [([], 0), ([WARNING], 1)])
def test_warnings_have_an_exit_code_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, findings: list[Finding], code: int
) -> None:
    result = RunResult(True, False, {}, [], [], findings, [], 1.0, tmp_path / "log")
    monkeypatch.setattr(check, "check", lambda *_: result)
    inventory = tmp_path / "cluster.ini"
    inventory.write_text("")
    for options in (["--plain"], ["--json"]):
        done = CliRunner().invoke(app, ["check", str(inventory), *options])
        assert done.exit_code == code, done.output
        assert ("slow" in done.output) is (bool(findings) and options == ["--plain"])
