"""Text of nodes, engines and models that is printed: no escape sequence of it reaches the terminal."""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import headfirst
import pytest
from headfirst.common.errors import HeadfirstError
from headfirst.control.cli import app as commands
from headfirst.control.cli import main
from headfirst.control.cli.check import print_comm
from headfirst.control.cli.diagnose import print_diagnosis
from headfirst.control.cli.live import print_status
from headfirst.control.live.chat import Piece, print_answer
from headfirst.control.live.logs import ContainerLogLine, print_logs
from headfirst.control.live.status_types import (
    ClusterStatus,
    EngineStatus,
    RankStatus,
    ReplicaStatus,
    WebuiStatus,
)
from headfirst.control.run.comm import Comm
from headfirst.control.run.events import (
    Finding,
    FindingsReported,
    HostFailed,
    Progress,
    StageStarted,
    TaskStarted,
)
from headfirst.control.run.messages import FINDINGS_KEY
from headfirst.control.run.progress_file import ProgressTail
from headfirst.control.run.reporters.json_events import JsonReporter
from headfirst.control.run.reporters.live import LiveReporter
from headfirst.control.run.reporters.plain import PlainReporter
from headfirst.control.run.translate import Translator
from headfirst.control.terminal import Terminal
from headfirst.decide.diagnose.types import Diagnosis, Event, NodeState
from rich.console import Console

# Writes to the clipboard, sets the title, clears the screen, reverses text; markup that rich would obey.
HOSTILE = (
    "\x1b]52;c;cm0gLXJm\x07\x1b]0;title\x1b\\\x1b[2J\x9b2J\x08\u202e[link=http://x]words[/link][/nothing]"
)


def terminal() -> tuple[Terminal, io.StringIO]:
    out = io.StringIO()
    return Terminal(file=out, force_terminal=True, width=500, color_system="truecolor"), out


def assert_harmless(text: str) -> None:
    """The words are there; of control sequences only those that the console itself writes."""
    assert "words" in text
    for bad in ("\x1b]", "\x1b[2J", "\x9b", "\x08", "\x07", "\u202e", "\x1bP", "\x1b\\"):
        assert bad not in text, ascii(text)


class Model:
    """Answers in the pieces it is given."""

    def __init__(self, *pieces: str) -> None:
        self._pieces = pieces

    def ask(self, _question: str) -> list[Piece]:
        return [Piece(text, reasoning=number == 0) for number, text in enumerate(self._pieces)]


@pytest.mark.parametrize("split", [1, 2, 5, 400])
def test_an_answer_in_chunks_of_any_length(split: int) -> None:
    text = f"thought{HOSTILE}"
    pieces = [text[start : start + split] for start in range(0, len(text), split)]
    for console in (terminal(), plain()):
        print_answer(Model(*pieces), "?", console[0])  # type: ignore[arg-type]
        shown = console[1].getvalue()
        assert "\x1b]" not in shown
        assert "\x1b[2J" not in shown
        assert not any(char in shown for char in "\x07\x08\x9b\u202e"), ascii(shown)
        assert "[link=http://x]" in shown.replace("\x1b[2m", "").replace("\x1b[0m", "")


def plain() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=True, width=500, color_system=None), out


def test_log_lines_keep_their_colours_only() -> None:
    console, out = plain()
    coloured = Console(file=out, force_terminal=True, width=500, color_system="standard")
    line = ContainerLogLine(
        "rank 0", "node1", f"2026{HOSTILE}", f"\x1b[31mred\x1b[0m {HOSTILE}\x1b]8;;http://y\x1b\\link"
    )
    print_logs([line], console, timestamps=True)
    print_logs([line], coloured)
    assert_harmless(out.getvalue())
    assert "\x1b[31mred" in out.getvalue()


def test_the_console_keeps_its_own_styles() -> None:
    console, out = terminal()
    console.print("[bold red]error:[/] x", "\x1b[2Jwords", highlight=False)
    assert out.getvalue().startswith("\x1b[1;31merror:\x1b[0m x words")


def test_findings_failures_and_progress() -> None:
    events: list[Any] = [
        StageStarted("check", "Look"),
        FindingsReported(
            "check", "node1", (Finding("x", "warning", f"node1{HOSTILE}", HOSTILE, "", HOSTILE),)
        ),
        TaskStarted("check", "node1", HOSTILE),
        Progress("check", "node1", HOSTILE, 5, 5, "files", HOSTILE, None, None),
    ]
    failed = HostFailed("check", "node1", HOSTILE, HOSTILE, unreachable=False, result={})
    out = io.StringIO()
    reporter = PlainReporter(out)
    live_console, live_out = terminal()
    with LiveReporter(live_console) as live:
        for event in [*events, failed]:
            reporter.handle(event)
            live.handle(event)
            live.tick()
    assert_harmless(out.getvalue())
    shown = live_out.getvalue()
    assert "words" in shown
    assert not any(bad in shown for bad in ("\x1b]", "\x9b", "\x07", "\x08", "\u202e")), ascii(shown)


def test_json_is_ascii() -> None:
    out = io.StringIO()
    JsonReporter(out).handle(TaskStarted("check", "node1", HOSTILE))
    assert out.getvalue().isascii()
    assert "\x1b" not in out.getvalue()
    assert json.loads(out.getvalue())["task"] == HOSTILE


@pytest.mark.parametrize("found", ["text", 5, {"a": 1}, ["text"], [{"id": 1}], [None]])
def test_results_of_a_node_that_only_look_like_findings(found: Any) -> None:
    result = {FINDINGS_KEY: found, "argument_errors": 7, "msg": "no"}
    action = "headfirst.serving.check_report"
    data = {"host": "node1", "task": "Look", "task_action": action, "res": result}
    events = list(Translator().translate({"event": "runner_on_failed", "event_data": data}))
    assert [event.message for event in events if isinstance(event, HostFailed)] == ["no"]
    assert not any(isinstance(event, FindingsReported) for event in events)


@pytest.mark.parametrize(
    "line", [b"[" * 5000, b'{"host": "a", "what": "b", "done": 1e999, "total": 1}', b"[]", b"7", b"\xff"]
)
def test_lines_of_progress_that_are_none(tmp_path: Path, line: bytes) -> None:
    bad: list[str] = []
    (tmp_path / "progress").write_bytes(line + b"\n")
    assert ProgressTail(tmp_path / "progress", on_bad_line=bad.append).read("weights") == []
    assert len(bad) == 1


def test_status() -> None:
    console, out = terminal()
    rank = RankStatus(
        rank=0,
        host="node1",
        state=HOSTILE,
        problem=HOSTILE,
        image=HOSTILE,
        started_at="words" + HOSTILE,
        argv=[HOSTILE],
    )
    page = WebuiStatus(url="http://x", ready=False, host="node1", state=HOSTILE)
    engine = EngineStatus(url="http://x", ready=True, models=[HOSTILE])
    replica = ReplicaStatus(service=HOSTILE, index=0, ready=False, ranks=[rank], engine=engine)
    print_status(
        ClusterStatus(ready=False, replicas=[replica] * 2, webui=page), "x.ini", console, arguments=True
    )
    assert_harmless(out.getvalue())


def test_diagnosis() -> None:
    console, out = terminal()
    event = Event(
        at=1.0,
        rank=0,
        host="node1",
        rule="unknown-error",
        failures=[],
        weight="cause",
        means=HOSTILE,
        fix=HOSTILE,
        source="engine's log",
        lines=[HOSTILE],
    )
    node = NodeState(rank=0, host="node1", state=HOSTILE, doing=HOSTILE, clock_offset_s=0, problem=HOSTILE)
    for decisive in (event, None):
        found = Diagnosis(ready=False, decisive=decisive, then=[event], notes=[event], nodes=[node])
        print_diagnosis(found, "x.ini", console)
    assert_harmless(out.getvalue())


def test_communication() -> None:
    console, out = terminal()
    way = {"version": HOSTILE, "network": HOSTILE, "devices": [HOSTILE], "disabled": []}
    finding = {
        "id": "x",
        "severity": "error",
        "host": HOSTILE,
        "what": HOSTILE,
        "why": HOSTILE,
        "fix": HOSTILE,
    }
    found = Comm.model_validate(
        {
            "hosts": [],
            "pairs": [],
            "rendezvous_held": False,
            "port": 1,
            "torch": HOSTILE,
            "runs": [{"backend": "gloo", "ranks": 2, "rows": [], "stopped": HOSTILE, "link_gbit": 1.0}],
            "errors": [],
            "nccl": {"node1": way | {"rdma": 1, "direct": 1, "socket": 1, "inside": 1}},
            "findings": [finding],
        }
    )
    print_comm(found, console)
    assert_harmless(out.getvalue())


def test_the_last_paragraph_of_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise HeadfirstError(HOSTILE, where=HOSTILE, hint=HOSTILE)

    monkeypatch.setattr(commands, "app", fail)
    monkeypatch.setattr(sys, "argv", ["deploy", "status"])
    with pytest.raises(SystemExit):
        main.main()
    assert_harmless(capsys.readouterr().err)


def test_an_error_breaks_between_words_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What people paste is whole: a command, a flag with its value, a setting in quotes."""
    what = "the model does not fit into the memory of its GPUs, of which there are two"
    setting, flag = 'engine_args="--max-model-len 4096"', "--kv-cache-dtype float16"
    command = "deploy init example.ini --example a100x4 --force"
    hint = f"Shorten the requests, for example with {setting} and {flag}.\nA correct one: {command}"

    def fail() -> None:
        raise HeadfirstError(what, where="cluster.ini:7", hint=hint)

    def printed(**environment: str) -> str:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit):
            main.main()
        return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().err)

    monkeypatch.setattr(commands, "app", fail)
    monkeypatch.setattr(sys, "argv", ["deploy", "plan"])
    piped, narrow = printed(), printed(COLUMNS="40", FORCE_COLOR="1")
    assert piped == f"error: cluster.ini:7: {what}\n{textwrap.indent(hint, '  ')}\n"
    assert narrow.split() == piped.split()
    assert all(len(line) <= 40 or line.strip() == command for line in narrow.splitlines())
    assert all(whole in narrow for whole in (setting, flag, command))


def test_every_command_prints_through_the_terminal() -> None:
    """No module makes a Console of rich: what it printed would pass unchecked."""
    package = Path(headfirst.__file__).parent
    makers = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Console"
    ]
    assert makers == []
