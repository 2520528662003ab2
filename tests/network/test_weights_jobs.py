"""A file that is spoilt on one member comes again by the jobs of role weights, however late a task of it is.

The nodes are this machine, with stand-ins for systemd's two commands; job, members and bytes are real.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.headfirst.serving.plugins.action.job import ActionModule
from ansible_collections.headfirst.serving.plugins.plugin_utils import job_script
from ansible_collections.headfirst.serving.plugins.plugin_utils.job_script import Job, JobReport
from headfirst.node.weights.proof.verify import verify
from transfers import Members
from weights_checkpoints import SHARD_1, two_shards, write_checkpoint

ROUNDS = 20
LONGEST_DELAY_S = 0.8  # of a task on a host, behind the same task on another one
BRING = Path(__file__).parents[2] / "roles" / "weights" / "tasks" / "bring.yml"
# A unit is a process group, and a file with its number while it runs.
SYSTEMD_RUN = f"""#!{sys.executable}
import os, pathlib, shlex, subprocess, sys
if os.fork():
    sys.exit()
os.setsid()
at = sys.argv.index("--")
settings = dict(word[2:].split("=", 1) for word in sys.argv[1:at] if "=" in word)
properties = dict(word.split("=", 2)[1:] for word in sys.argv[1:at] if word.startswith("--property="))
given = [word.removeprefix("--setenv=") for word in sys.argv[1:at] if word.startswith("--setenv=")]
unit = pathlib.Path(os.environ["UNITS"]) / settings["unit"]
unit.write_text(str(os.getpid()))
log = os.open(properties["StandardError"].removeprefix("append:"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for number in (1, 2):
    os.dup2(log, number)
code = subprocess.call(sys.argv[at + 1 :], env=os.environ | dict(word.split("=", 1) for word in given))
os.environ |= {{"SERVICE_RESULT": "success", "EXIT_CODE": "exited", "EXIT_STATUS": str(code)}}
subprocess.run(shlex.split(properties["ExecStopPost"].replace("$$", "$")), check=True)
unit.unlink()
"""
SYSTEMCTL = """#!/bin/sh
[ "$1" = is-active ] || exit 0
if [ -f "$UNITS/$2" ]; then echo active; else echo inactive; fi
"""


class Jobs(Members):
    """Members that are jobs on this machine."""

    def play(self, delays: random.Random) -> list[dict[str, Any]]:
        """The tasks of the role that start or await the jobs, on all members at once; their last results."""
        tasks = [task.get("headfirst.serving.job", {}) for task in yaml.safe_load(BRING.read_text())]
        results: list[dict[str, Any]] = []
        with ThreadPoolExecutor(self.count) as pool:
            for task in [task for task in tasks if "returns" in task]:
                late = [delays.uniform(0, LONGEST_DELAY_S) for _ in range(self.count)]
                results = list(pool.map(self.act, range(self.count), [task] * self.count, late))
                assert not [result for result in results if result.get("failed")], results
        return results

    def act(self, index: int, task: dict[str, Any], late_s: float) -> dict[str, Any]:
        """One task on one member."""
        time.sleep(late_s)
        action = object.__new__(ActionModule)
        action._host, action._what, action._silence_s = f"node{index + 1}", "weights", 0
        action._returns, action._ask = task["returns"], self.answer
        job = Job(f"weights-{index}", self.command(index, ["@/bf16"]))
        return action._follow(job, task.get("state", "finished"))

    def answer(self, script: str) -> JobReport:
        """What the shell of a node reports."""
        variables = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "UNITS": f"{self.folder}/units"}
        done = subprocess.run(
            ["sh"], input=script, env=self.environment | variables, capture_output=True, text=True, check=True
        )
        return job_script.parse(done.stdout)


@pytest.fixture
def members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setattr(job_script, "JOBS", str(tmp_path / "jobs"))
    monkeypatch.setattr(job_script, "SECRETS", str(tmp_path / "run"))
    for name in ("bin", "units"):
        (tmp_path / name).mkdir()
    for name, text in (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    yield Jobs(tmp_path, 2)
    for unit in (tmp_path / "units").iterdir():
        os.killpg(int(unit.read_text()), signal.SIGKILL)


def test_a_spoilt_file_comes_again_whenever_the_tasks_of_a_host_run(members: Jobs) -> None:
    write_checkpoint(members.folder / "source", two_shards())
    source = str(members.folder / "source")
    first = members.run("@/fp8", "--model", source, "--from", "path", "--convert-to", "@/bf16")
    delays = random.Random(41)
    for _ in range(ROUNDS):
        with (members.home(1) / "bf16" / SHARD_1).open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            [byte] = file.read()
            file.seek(-1, os.SEEK_END)
            file.write(bytes([byte ^ 1]))
        results = members.play(delays)
        assert [result["changed"] for result in results] == [False, True]
        assert verify(members.home(1) / "bf16", deep=True).digest == first[0]["digest"]
