#!/usr/bin/env python3
"""What watching a run costs: run_playbook (ansible-runner, events, reporter) against plain ansible-playbook.

Prints median times and their ratio on the same playbook, in turns, with the same Ansible settings. CPU time
is the steadier figure on a machine that others use too.
Usage: python benchmarks/run_overhead.py [ROUNDS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headfirst.control.run.environment import ansible_environment
from headfirst.control.run.private_dir import private_dir
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.control.run.runner import run_playbook

HOSTS = 8
TASKS = 40
FORKS = 20


class Cost(NamedTuple):
    """Seconds of one run: on the clock, and of CPU in this process and its children."""

    wall: float
    cpu: float


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    ours, plain = [], []
    with tempfile.TemporaryDirectory() as folder:
        inventory, playbook = write_inputs(Path(folder))
        for _ in range(rounds):
            plain.append(cost(lambda: run_plain(inventory, playbook)))
            ours.append(cost(lambda: run_ours(inventory, playbook, Path(folder) / "log")))
    print(f"{HOSTS * TASKS} task results ({HOSTS} hosts, {TASKS} tasks), median of {rounds}")
    for what in Cost._fields:
        fast, slow = (statistics.median(getattr(one, what) for one in runs) for runs in (plain, ours))
        print(
            f"{what:4}  ansible-playbook {fast:6.2f} s  run_playbook {slow:6.2f} s  ratio {slow / fast:.2f}"
        )


def cost(run: Callable[[], None]) -> Cost:
    """What one run takes."""
    wall, before = time.perf_counter(), os.times()
    run()
    after = os.times()
    return Cost(time.perf_counter() - wall, sum(after[:4]) - sum(before[:4]))


def write_inputs(folder: Path) -> tuple[Path, Path]:
    """An inventory of local hosts and a playbook whose tasks cost little beside their events."""
    inventory, playbook = folder / "hosts.ini", folder / "play.yml"
    inventory.write_text(f"node[1:{HOSTS}] ansible_connection=local\n")
    tasks = "".join(f"    - ansible.builtin.debug: {{msg: task {number}}}\n" for number in range(TASKS))
    playbook.write_text(
        f"- name: bench | Many small tasks\n  hosts: all\n  gather_facts: false\n  tasks:\n{tasks}"
    )
    return inventory, playbook


def run_plain(inventory: Path, playbook: Path) -> None:
    """ansible-playbook alone."""
    with private_dir() as private:
        environment = {**os.environ, **ansible_environment(private, FORKS)}
        subprocess.run(
            ["ansible-playbook", "-i", str(inventory), str(playbook)],
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )


def run_ours(inventory: Path, playbook: Path, log: Path) -> None:
    """The same through run_playbook."""
    result = run_playbook(playbook, [inventory], reporter=QuietReporter(), log_file=log, hosts=FORKS)
    assert result.ok, result


if __name__ == "__main__":
    main()
