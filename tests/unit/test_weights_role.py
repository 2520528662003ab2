"""Role weights on two hosts of this machine, with the real node tools: what it reads and decides."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.control.run.result import RunResult
from headfirst.control.run.runner import run_playbook
from headfirst.node.weights.fetch.fetch_run import fetch
from headfirst.node.weights.fetch.fetching import FetchRequest
from weights_checkpoints import two_shards, write_checkpoint

HOSTS = ("node1", "node2")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "model", two_shards())
    return tmp_path / "model"


def applied(tmp_path: Path, source: Path, command: Path, *, check: bool = False) -> tuple[RunResult, str]:
    """A run of the role, and its log."""
    addresses = [f"127.0.0.{number}" for number in range(1, len(HOSTS) + 1)]
    lines = [
        f"{host} ansible_connection=local ansible_python_interpreter={sys.executable} "
        f"weights_address={address} weights_dir={tmp_path / host}"
        for host, address in zip(HOSTS, addresses, strict=True)
    ]
    (tmp_path / "hosts.ini").write_text("\n".join(lines))
    variables = {
        "weights_source": "path", "weights_model": str(source), "weights_name": "served",
        "weights_token": "x", "weights_shared": "stage", "weights_members": addresses,
        "weights_command": str(command),
    }  # fmt: skip
    play = {"name": "weights | Apply", "hosts": "all", "gather_facts": False, "vars": variables}
    play["roles"] = ["headfirst.serving.weights"]
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    log = tmp_path / "run.log"
    done = run_playbook(
        tmp_path / "play.yml", [tmp_path / "hosts.ini"], reporter=QuietReporter(), log_file=log, check=check
    )
    return done, log.read_text()


def test_hosts_that_have_the_model_are_left_as_they_are(tmp_path: Path, source: Path) -> None:
    command = tmp_path / "headfirst-weights"
    paths = json.dumps(sys.path)
    command.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path = {paths}\n"
        "print('a warning', file=sys.stderr)\nfrom headfirst.node.weights.cli import main\nmain()\n"
    )
    command.chmod(0o755)
    for host in HOSTS:
        fetch(FetchRequest("path", str(source)), tmp_path / host / "served")
    done, log = applied(tmp_path, source, command)
    assert (done.ok, done.changed_total) == (True, 0), log


def test_a_check_of_clean_hosts_reports_what_the_variables_lack(tmp_path: Path, source: Path) -> None:
    done, log = applied(tmp_path, source, tmp_path / "not-there", check=True)
    assert done.ok, log
