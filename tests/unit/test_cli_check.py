"""`deploy check` tells a script what it found by its exit code."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.control.cli.app import app
from headfirst.control.run.comm import Comm, Pair, Row, Run
from headfirst.control.run.events import Finding, FindingsReported
from headfirst.control.run.reporters.live import LiveReporter
from headfirst.control.run.reporters.plain import PlainReporter
from headfirst.control.run.result import RunResult
from headfirst.control.terminal import Terminal
from typer.testing import CliRunner

WARNING = Finding("weights-on-nfs", "warning", "node1", "/data lies on nfs4", "It is [slow].", "Use a disk.")


@pytest.mark.parametrize(("findings", "code"), [([], 0), ([WARNING], 1)])
def test_warnings_have_an_exit_code_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, findings: list[Finding], code: int
) -> None:
    result = RunResult(True, False, {}, [], [], findings, [], 1.0, tmp_path / "log")
    monkeypatch.setattr("headfirst.control.deployment.verbs.check.check", lambda *_: result)
    inventory = tmp_path / "cluster.ini"
    inventory.write_text("")
    for options in (["--plain"], ["--json"]):
        done = CliRunner().invoke(app, ["check", str(inventory), *options])
        assert done.exit_code == code, done.output
        warned = bool(findings) and options == ["--plain"]
        assert ("Ready, with 1 warning (exit code 1)" in done.output) is warned
        assert "slow" not in done.output  # the run has printed it


@pytest.mark.parametrize("reporter", ["plain", "live"])
def test_a_warning_is_printed_once_with_reason_and_fix(reporter: str) -> None:
    out = io.StringIO()
    reported = FindingsReported("check", "node1", (WARNING,))
    if reporter == "plain":
        PlainReporter(out).handle(reported)
    else:
        with LiveReporter(Terminal(file=out, width=200)) as live:
            live.handle(reported)
    assert out.getvalue().count("node1: warning: ") == (reporter == "plain")
    assert out.getvalue().count("/data lies on nfs4. It is [slow]. Use a disk.") == 1


def talked(*severities: str) -> Comm:
    row = Row(bytes=2**30, seconds=1.5, algbw=7e8, busbw=7e8, wrong=0, graph=False)
    return Comm(
        hosts=[],
        pairs=[
            Pair(
                source="node1",
                target="node2",
                address="10.0.0.2",
                port=40001,
                rendezvous=False,
                ok=True,
                state="ok",
                words="",
            )
        ],
        rendezvous_held=False,
        port=40001,
        torch="2.9",
        runs=[Run(backend="gloo", ranks=2, rows=[row], stopped="", link_gbit=10.0)],
        errors=[],
        nccl={},
        findings=[
            Finding(id="comm-slow", severity=severity, host="node1", what="[slow]", why="", fix="Look.")
            for severity in severities
        ],
    )


@pytest.mark.parametrize(("severities", "code"), [((), 0), (("warning",), 1), (("warning", "error"), 3)])
def test_the_ranks_talk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, severities: tuple[str, ...], code: int
) -> None:
    monkeypatch.setattr("headfirst.control.deployment.verbs.check.comm", lambda *_: talked(*severities))
    inventory = tmp_path / "cluster.ini"
    inventory.write_text("")
    done = CliRunner().invoke(app, ["check", str(inventory), "--comm", "--plain"])
    assert done.exit_code == code, done.output
    assert "1 of 1 connections made" in done.output
    assert "1 GiB" in done.output
    assert done.output.count("[slow]") == len(severities)
    told = CliRunner().invoke(app, ["check", str(inventory), "--comm", "--json"])
    assert told.exit_code == code
    assert json.loads(told.output.splitlines()[-1])["runs"][0]["rows"][0]["bytes"] == 2**30


def test_a_backend_is_only_for_the_talk(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["check", str(tmp_path), "--backend", "gloo"])
    assert isinstance(done.exception, InputError)
