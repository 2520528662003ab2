"""Clocks of hosts are compared with the controller's, whatever the way to them takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.action import host_facts
from ansible_collections.headfirst.serving.plugins.plugin_utils import check_findings
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.control.run.runner import run_playbook
from recorded_hosts import facts
from test_check_rules import limits

# Fixtures: Pythons whose clocks are wrong, on hosts that take a while to run a module.
PLAY = """\
- hosts: all
  gather_facts: false
  tasks:
    - headfirst.serving.host_facts: {}
      register: answer
    - ansible.builtin.set_stats:
        data: "{{ {inventory_hostname: answer.host} }}"
"""


def host(folder: Path, ahead_s: float, slow_s: float) -> str:
    """The interpreter of a host, of which the clock of each process is ahead."""
    folder.mkdir()
    late = f"import time\nright = time.time\ntime.time = lambda: right() + {ahead_s}\n"
    (folder / "sitecustomize.py").write_text(late)
    program = folder / "python"
    program.write_text(
        # What sudo prints on a terminal, where a host does not resolve its own name, is in the output.
        f'#!/bin/sh\ncase "$*" in *AnsiballZ*) sleep {slow_s};; *) echo "sudo: unknown host";; esac\n'
        f'PYTHONPATH={folder} exec python3 "$@"\n'
    )
    program.chmod(0o755)
    return f"{folder.name} ansible_connection=local ansible_python_interpreter={program}\n"


def test_a_clock_is_read_beside_a_task_that_takes_long(tmp_path: Path) -> None:
    hosts = {"ahead": 31.0, "little": 3.0, "behind": -40.0, "right": 0.0}
    inventory, play = tmp_path / "hosts.ini", tmp_path / "play.yml"
    inventory.write_text("".join(host(tmp_path / name, ahead, slow_s=1) for name, ahead in hosts.items()))
    play.write_text(PLAY)
    done = run_playbook(play, [inventory], reporter=QuietReporter(), log_file=tmp_path / "log", hosts=4)
    assert done.ok, done
    for name, ahead in hosts.items():
        read: dict[str, Any] = done.stats[name]
        assert read["clock_offset_s"] == pytest.approx(ahead, abs=read["clock_error_s"] + 0.05)
        assert read["clock_error_s"] < 1


@pytest.mark.parametrize(
    ("before", "read", "after", "offset", "error"),
    [(100.0, 100.5, 101.0, 0.0, 0.5), (100.0, 131.2, 100.4, 31.0, 0.2), (100.0, 60.0, 140.0, -60.0, 20.0)],
)
def test_a_reading_is_as_sure_as_it_was_quick(
    before: float, read: float, after: float, offset: float, error: float
) -> None:
    assert host_facts.offset(before, read, after) == pytest.approx(
        {"clock_offset_s": offset, "clock_error_s": error}
    )


@pytest.mark.parametrize(
    ("clocks", "controller", "peers", "found"),
    [
        ([(31.0, 0.1), (31.0, 0.1), (31.0, 0.1)], 60, 30, []),  # the controller's clock is wrong
        ([(29.0, 0.1), (0.0, 0.1), (0.0, 0.1)], 30, 5, [("clock-differs", "a")]),
        ([(31.0, 0.1), (0.0, 0.1), (0.0, 0.1)], 30, 60, [("clock", "a")]),
        ([(31.0, 2.0), (0.0, 0.1), (0.0, 0.1)], 30, 60, []),  # it may be 29 s
        ([(-31.0, 0.5), (-31.0, 0.5), (0.0, 0.5)], 30, 60, [("clock", "a"), ("clock", "b")]),
        ([(6.0, 1.0), (0.0, 1.0), (0.0, 1.0)], 30, 5, []),
    ],
)
def test_the_controller_and_the_peers_have_a_limit_each(
    clocks: list[tuple[float, float]], controller: float, peers: float, found: Any, tmp_path: Path
) -> None:
    known = {name: facts("cpu-only", tmp_path / name) for name in "abc"}
    asked = limits("cpu-only", known["a"]) | {"max_clock_skew_s": controller, "max_clock_difference_s": peers}
    for name, (offset, error) in zip("abc", clocks, strict=True):
        known[name] |= {"clock_offset_s": offset, "clock_error_s": error}
    results = {name: {"host": host} for name, host in known.items()}
    findings = check_findings.findings(results, dict.fromkeys(known, asked))
    assert [(each["id"], each["host"]) for each in findings if each["id"].startswith("clock")] == found
