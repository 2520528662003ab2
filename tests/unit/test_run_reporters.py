"""The three reporters, fed with the events of a run."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import get_args

import pytest
from headfirst.control.run import events as kinds
from headfirst.control.run.amounts import amount, duration, size, speed
from headfirst.control.run.events import (
    Event,
    Finding,
    FindingsReported,
    HostFailed,
    Progress,
    RunDone,
    RunStarted,
    StageDone,
    StageStarted,
    TaskDone,
    TaskStarted,
)
from headfirst.control.run.reporters.json_events import JsonReporter, event_fields, event_name
from headfirst.control.run.reporters.live import HostActivity, LiveReporter, ProgressBoard
from headfirst.control.run.reporters.plain import PlainReporter
from headfirst.control.run.translate import PlayName, parse_play_name
from rich.console import Console

DOCS = Path(__file__).parents[2] / "docs" / "json-events.md"
FAILED = HostFailed("weights", "node2", "Copy", "no room\nreally", False, {"msg": "raw"})


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def copying(done: int, total: int = 3_400_000_000, host: str = "node1") -> Progress:
    return Progress("weights", host, "copy", done, total, "bytes", "shard 1", 120e6, 18.0)


def test_play_names() -> None:
    assert parse_play_name("host | Install Docker | now") == PlayName("host", "Install Docker | now")
    assert parse_play_name("Something else") == PlayName("Something else", "Something else")


def test_amounts() -> None:
    assert [duration(seconds) for seconds in (0.4, 65, 3780)] == ["0s", "1m 05s", "1h 03m"]
    assert [size(count) for count in (999, 1_500, 642e9, 1.3e12)] == ["999 B", "1.5 kB", "642.0 GB", "1.3 TB"]
    assert amount(3, 163, "files") == "3 of 163 files"
    assert amount(1_200_000, 0, "bytes") == "1.2 MB"
    assert speed(1.5, "layers") == "1.5 layers/s"


def test_plain_lines() -> None:
    out, clock = io.StringIO(), Clock()
    reporter = PlainReporter(out, clock)
    with reporter:
        reporter.handle(StageStarted("weights", "Bring the weights"))
        reporter.handle(TaskStarted("weights", "node1", "Copy"))
        reporter.handle(copying(1_000_000_000))  # too soon after the last line
        clock.now += 6
        reporter.handle(copying(1_200_000_000))
        clock.now += 1
        reporter.handle(copying(1_300_000_000))  # too soon again
        reporter.handle(copying(3_400_000_000))  # the end is always told
        clock.now += 31
        reporter.tick()
        reporter.tick()
        reporter.handle(TaskDone("weights", "node1", "Copy", True, 38.0))
        reporter.handle(TaskDone("weights", "node1", "Look", False, 1.0))
        reporter.handle(FAILED)
        warning = Finding("clock", "warning", "node1", "clock is off", fix="Install chrony.")
        error = Finding("disk", "error", "node1", "disk is full")
        reporter.handle(FindingsReported("check", "node1", (warning, error)))
        reporter.handle(StageDone("weights", 44.0, 1, ("node2",)))
        reporter.handle(StageDone("serve", 2.0, 0, (), completed=False))
    assert out.getvalue().splitlines() == [
        "== weights: Bring the weights",
        "   node1: copy: 1.2 GB of 3.4 GB, 120.0 MB/s, 18s left, shard 1",
        "   node1: copy: 3.4 GB of 3.4 GB, 120.0 MB/s, 18s left, shard 1",
        "   node1: still at: Copy (38s); copy: 3.4 GB of 3.4 GB, shard 1, nothing new for 31s",
        "   node1: changed: Copy",
        "   node2: failed: Copy: no room",
        "      really",
        "   node1: warning: clock is off. Install chrony.",
        "== weights: 44s, 1 changed, failed on node2",
        "== serve: 2s, 0 changed, broken off",
    ]


def test_json_lines_are_the_documented_ones() -> None:
    examples: list[Event] = [
        RunStarted("up.yml", "/log"),
        StageStarted("weights", "Bring"),
        TaskStarted("weights", "node1", "Copy"),
        copying(1),
        TaskDone("weights", "node1", "Copy", True, 1.5),
        FindingsReported("check", "node1", (Finding("a", "error", "node1", "b"),)),
        FAILED,
        StageDone("weights", 2.0, 1, ("node2",)),
        RunDone(False, False, 3.0, {"node1": 1}, ("node2",), "/log"),
    ]
    assert {type(example) for example in examples} == set(get_args(kinds.Event))
    out = io.StringIO()
    reporter = JsonReporter(out)
    for example in examples:
        reporter.handle(example)
    records = [json.loads(line) for line in out.getvalue().splitlines()]
    documented = {
        name: re.findall(r"`(\w+)`", fields)
        for name, fields in re.findall(r"^\| `(\w+)` \| ([^|]*) \|", DOCS.read_text(), re.MULTILINE)
    }
    assert {event_name(kind): event_fields(kind) for kind in get_args(kinds.Event)} == documented
    for record in records:
        assert list(record) == ["event", "time", *documented[record["event"]]]
    assert records[5]["findings"] == [
        {"id": "a", "severity": "error", "host": "node1", "what": "b", "why": "", "fix": ""}
    ]


def screen(height: int = 24, width: int = 100) -> tuple[LiveReporter, Console, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, height=height, no_color=True)
    return LiveReporter(console), console, out


def test_live_shows_a_line_a_host_and_keeps_ended_stages() -> None:
    reporter, console, out = screen()
    with reporter:
        reporter.handle(StageStarted("check", "Look [at] hosts"))
        reporter.handle(TaskStarted("check", "node1", "Look"))
        reporter.handle(TaskDone("check", "node1", "Look", True, 1.0))
        reporter.handle(StageDone("check", 65.0, 1, ()))
        reporter.handle(StageStarted("weights", "Bring [them]"))
        for host in ("node1", "node2", "node3"):
            reporter.handle(TaskStarted("weights", host, "Copy [bold]all"))
        reporter.handle(copying(1_700_000_000))
        reporter.handle(FAILED)
        reporter.handle(TaskDone("weights", "node3", "Copy", False, 1.0))
        reporter.tick()
    with console.capture() as capture:
        console.print(reporter._draw())
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capture.get()).splitlines()
    assert "Bring [them]" in lines[0]
    assert "node1 copy ━━━━━━━━━━━━━━━━━━━━ 1.7 GB of 3.4 GB shard 1" in lines[1]
    assert lines[1].endswith("120.0 MB/s, 18s left")
    assert "✗ node2 Copy: no room" in lines[2]
    assert "· node3 Copy [bold]all" in lines[3]
    later = reporter._board.clock() + 40
    reporter._board.clock = lambda: later
    with console.capture() as capture:
        console.print(reporter._draw())
    assert "nothing new for 40s" in capture.get().splitlines()[1]
    printed = out.getvalue()
    assert "✓ \x1b[1mcheck   \x1b[0m Look [at] hosts" in printed
    assert "1 changed, 1m 05s" in printed


def test_live_fits_sixteen_hosts_into_a_small_terminal() -> None:
    reporter, console, _ = screen(height=14)
    reporter.handle(StageStarted("host", "Install"))
    for number in range(16):
        reporter.handle(TaskStarted("host", f"node{number}", "Install"))
        reporter.handle(TaskDone("host", f"node{number}", "Install", False, 1.0))
    reporter.handle(TaskStarted("host", "node13", "Still at it"))
    reporter.handle(HostFailed("host", "node15", "Install", "broken", False, {}))
    with console.capture() as capture:
        console.print(reporter._draw())
    lines = capture.get().splitlines()
    assert len(lines) < 14
    assert any("node13 Still at it" in line for line in lines)
    assert any("node15 Install: broken" in line for line in lines)
    assert "and 6 more hosts" in lines[-1]


def test_board_lets_a_rescued_host_go_on() -> None:
    board = ProgressBoard(Clock())
    for event in (StageStarted("host", "x"), HostFailed("host", "node1", "Try", "no", False, {})):
        board.apply(event)
    assert board.rows["node1"].state is HostActivity.FAILED
    board.apply(TaskStarted("host", "node1", "Fix"))
    assert board.rows["node1"].state is HostActivity.WORKING


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    reporter = LiveReporter(Console(file=out, force_terminal=True, width=80))
    reporter.handle(StageStarted("host", "x"))
    reporter.handle(FAILED)
    assert "\x1b[3" not in out.getvalue()
