"""The shell of a job, run here with stand-ins for systemd's two commands, and its report read back."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils import job_script
from ansible_collections.headfirst.serving.plugins.plugin_utils.job_script import Job, JobReport, parse

# Runs the program at once, in the foreground, and leaves what ExecStopPost would leave.
SYSTEMD_RUN = f"""#!{sys.executable}
import os, pathlib, shlex, shutil, subprocess, sys
folder = pathlib.Path(os.environ["FOLDER"])
folder.joinpath("argv").write_text(repr(sys.argv))
[given] = [word for word in sys.argv if word.startswith("--property=EnvironmentFile=")]
shutil.copy2(given.split("=", 2)[2], folder / "secrets")
at = sys.argv.index("--")
given = dict(word.removeprefix("--setenv=").split("=", 1) for word in sys.argv[:at] if "--setenv" in word)
argv = [argument.replace("$$", "$") for argument in sys.argv[at + 1 :]]
with folder.joinpath("log").open("w") as log:
    code = subprocess.call(argv, env=os.environ | given, stdout=log, stderr=log)
[ended] = [word for word in sys.argv if word.startswith("--property=ExecStopPost=")]
os.environ |= {{"SERVICE_RESULT": "success", "EXIT_CODE": "exited", "EXIT_STATUS": str(code)}}
subprocess.run(shlex.split(ended.split("=", 2)[2].replace("$$", "$")), check=True)
"""
SYSTEMCTL = """#!/bin/sh
echo "$*" >>"$FOLDER/systemctl"
[ "$1" != is-active ] || cat "$FOLDER/active"
[ "$1" != stop ] || rm -rf "$FOLDER/../../run/test"
"""


SECRETS = job_script.SECRETS  # a node of a test has another folder


class Node:
    """A machine with the two stand-ins first on its PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bin = folder / "bin"
        self.jobs = folder / "jobs"
        self.folder = self.jobs / "test"
        self.memory = folder / "run"
        monkeypatch.setattr(job_script, "JOBS", str(self.jobs))
        monkeypatch.setattr(job_script, "SECRETS", str(self.memory))
        self.bin.mkdir()
        self.folder.mkdir(parents=True)
        for name, text in (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL)):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        self.say_active("inactive")

    def say_active(self, state: str) -> None:
        (self.folder / "active").write_text(state)

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.bin}:{os.environ['PATH']}", "FOLDER": str(self.folder)}

    def run(self, script: str) -> JobReport:
        done = subprocess.run(
            ["sh"], input=script, env=self.environment, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0, done.stderr
        return parse(done.stdout)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


RESULT = Job(
    "test",
    [
        "sh",
        "-c",
        'echo "{\\"changed\\": false, \\"said\\": \\"$1\\"}" >"$HEADFIRST_RESULT_FILE"',
        "-",
        "it's",
    ],
)


def test_a_program_runs_and_its_result_comes_back(node: Node) -> None:
    seen = node.run(job_script.start(RESULT, 1))
    assert seen.succeeded
    assert seen.result == {"changed": False, "said": "it's"}
    assert not seen.attached


def test_a_program_that_fails_leaves_its_last_lines(node: Node) -> None:
    lines = "\n".join(str(number) for number in range(100))
    seen = node.run(job_script.start(Job("test", ["sh", "-c", f"echo '{lines}'; exit 3"]), 1))
    assert not seen.succeeded
    assert seen.exit.endswith("exited 3")
    assert seen.log == [str(number) for number in range(80, 100)]


def test_a_secret_is_in_a_private_file_and_nowhere_else(node: Node) -> None:
    node.run(job_script.start(replace(RESULT, secrets={"TOKEN": 'a"$b'}), 1))
    assert (node.folder / "secrets").read_text() == 'TOKEN="a\\"\\$b"\n'
    assert stat.S_IMODE((node.folder / "secrets").stat().st_mode) == 0o600
    assert 'a"$b' not in (node.folder / "argv").read_text()
    assert stat.S_IMODE((node.folder / "signature").stat().st_mode) == 0o600


def test_a_secret_is_kept_in_memory_and_gone_when_the_job_ends(node: Node) -> None:
    (node.folder / "environment").write_text("what an earlier version left")
    assert SECRETS.startswith("/run/headfirst"), "gone after a reboot"
    start = job_script.start(replace(RESULT, secrets={"TOKEN": "hf_secret"}), 1)
    assert node.run(start).succeeded
    assert not list(node.memory.iterdir())
    (node.folder / "secrets").unlink()
    assert not [path for path in node.folder.iterdir() if "hf_secret" in path.read_text()]
    assert not (node.folder / "environment").exists()
    (node.bin / "systemd-run").write_text("#!/bin/sh\nexit 1\n")
    failed = subprocess.run(["sh"], input=start, env=node.environment, capture_output=True, text=True)
    assert failed.returncode != 0
    assert not list(node.memory.iterdir())


def test_a_time_limit_is_systemds(node: Node) -> None:
    node.run(job_script.start(replace(RESULT, time_limit_s=90), 1))
    assert "--property=RuntimeMaxSec=90" in (node.folder / "argv").read_text()
    node.run(job_script.start(RESULT, 1))
    assert "RuntimeMaxSec" not in (node.folder / "argv").read_text()
    assert replace(RESULT, time_limit_s=90).signature == RESULT.signature


@pytest.mark.parametrize(
    "line",
    [
        "progress []",
        "progress {",
        'progress {"done": "1"}',
        'progress {"done": -1}',
        'progress {"note": 1}',
        "result []",
        "result " + "[" * 100_000,
    ],
)
def test_a_report_that_is_malformed_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        parse(f"state running\n{line}\n")


def test_a_report_carries_nothing_else_and_no_escape_sequence() -> None:
    seen = parse('progress {"done": 1, "host": "other", "note": "\\u001b[2Jx"}\nlog \x1b]0;title\x07\n')
    assert seen.progress == {"done": 1, "note": "?[2Jx"}
    assert seen.log == ["?]0;title?"]
    behind_a_banner = parse("Welcome to node1\n\nstate ended\nexit success exited 0\nlog a b\n")
    assert (behind_a_banner.succeeded, behind_a_banner.log) == (True, ["a b"])


def test_a_running_unit_is_joined_by_equal_work_only(node: Node) -> None:
    node.run(job_script.start(RESULT, 0))
    (node.folder / "argv").unlink()
    (node.folder / "exit").unlink()
    node.say_active("active")
    (node.folder / "progress.json").write_text('{"done": 1,\n"total": 2}')
    seen = node.run(job_script.start(RESULT, 0))
    assert (seen.state, seen.attached, seen.progress) == ("running", True, {"done": 1, "total": 2})
    assert not (node.folder / "argv").exists(), "nothing was started"

    for other in (
        replace(RESULT, argv=[*RESULT.argv, "more"]),
        replace(RESULT, environment={"A": "b"}),
        replace(RESULT, secrets={"A": "b"}),
    ):
        assert not node.run(job_script.start(other, 1)).attached
        assert f"stop {RESULT.unit}" in (node.folder / "systemctl").read_text()
        (node.folder / "systemctl").unlink()


def test_stopping_says_whether_it_ran(node: Node) -> None:
    assert not node.run(job_script.stop(RESULT)).stopped
    assert node.run(job_script.poll(RESULT, 0)).state == "vanished", "gone without a word"
    node.say_active("active")
    assert node.run(job_script.stop(RESULT)).stopped
