"""The history of a node on disks that are full, damaged or were cut off in the middle of a line."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from headfirst.node.supervisor import events
from headfirst.node.supervisor.events import Events


def texts(file: Path) -> list[str]:
    """Of the lines that are events."""
    found = []
    for line in file.read_bytes().splitlines():
        try:
            found.append(json.loads(line)["text"])
        except ValueError:
            continue
    return found


@pytest.mark.parametrize("damage", [b"\xff\xfe" * 600, b'{"at": 1, "text": "\xc3"}\n' * 50, b"x" * 2000])
def test_a_long_history_with_bytes_that_are_no_text_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    monkeypatch.setattr(events, "_LONGEST", 1000)
    file = tmp_path / "events.jsonl"
    file.write_bytes(damage)
    history = Events(file)
    for number in range(30):
        history.add("headfirst-engine", "ended", f"event {number}")
    assert texts(file)[-1] == "event 29"
    assert file.stat().st_size < 2000


def test_half_a_line_costs_no_event_after_it(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_bytes(b'{"at": 1, "text": "cut o')
    Events(file).add("headfirst-engine", "ended", "the first one after a power failure")
    assert texts(file) == ["the first one after a power failure"]


def test_a_new_history_is_for_root_alone(tmp_path: Path) -> None:
    Events(tmp_path / "events.jsonl").add("headfirst-engine", "ended", "text")
    assert (tmp_path / "events.jsonl").stat().st_mode & 0o777 == 0o600


# Adds events to the file in its argument, where no file may grow beyond 600 bytes.
SMALL_FILES = """\
import pathlib, resource, signal, sys
from headfirst.node.supervisor.events import Events
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
for number in range(20):
    Events(pathlib.Path(sys.argv[1])).add('headfirst-engine', 'ended', f'event {number}')
"""


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    """The kernel writes a part of the last line that fits, as on a full disk."""
    file = tmp_path / "events.jsonl"
    argv = [sys.executable, "-c", SMALL_FILES, str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = file.read_bytes().splitlines(keepends=True)
    assert lines and all(line.endswith(b"\n") for line in lines)
    assert texts(file) == [f"event {number}" for number in range(len(lines))]
    assert "headfirst-engine: event 19" in done.stderr  # the journal has it


def test_a_journal_that_is_gone_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        Events(tmp_path / "events.jsonl").add("headfirst-engine", "ended", "text")
        with contextlib.suppress(OSError):
            full.close()  # it writes what is left
    assert texts(tmp_path / "events.jsonl") == ["text"]
