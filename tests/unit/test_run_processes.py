"""Processes of a run end with it, also those that were started while it was stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from headfirst.control.run.cancel import descendants, kill, start_time

# A worker of Ansible: a session of its own, which starts one process more than was listed, and ends.
WORKER = """
import os, subprocess, sys
os.setsid()
print(os.getpid(), flush=True)
sys.stdin.readline()
child = subprocess.Popen(["sh", "-c", "trap '' INT TERM; sleep 299.21; sleep 299.21"])
print(child.pid, flush=True)
os._exit(0)
"""


def test_what_a_worker_starts_after_it_was_listed_ends_too() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert int(worker.stdout.readline()) == worker.pid
        listed = [one for one in descendants(os.getpid()) if one.pid == worker.pid]
        worker.stdin.write("\n")
        worker.stdin.flush()
        late = int(worker.stdout.readline())
    assert start_time(late) is not None
    kill(listed)
    assert start_time(late) is None


def test_an_id_that_was_given_to_another_process_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "299.22"]) as process:
        (listed,) = (one for one in descendants(os.getpid()) if one.pid == process.pid)
        kill([listed._replace(started=listed.started - 1)])
        assert Path(f"/proc/{process.pid}/cmdline").read_bytes()
        kill([listed])
        assert process.wait(5) == -9
