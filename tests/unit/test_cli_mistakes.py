"""Mistakes on the command line end with what is wrong, where, and what to type; never with a traceback."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import deploy
from headfirst.common.errors import InputError
from headfirst.control.cli.app import app
from headfirst.control.cli.up import print_summary
from headfirst.control.deployment.verbs.up import Outcome
from headfirst.control.run.result import RunResult, StageTime
from headfirst.decide.plan.types import Plan
from typer.testing import CliRunner

DEPLOY = Path(sys.executable).parent / "deploy"
ROOT = Path(__file__).parents[2]
FLAGS = ["--host", "192.0.2.11", "--user", "ubuntu", "--gpus", "8", "--gpu", "A100-80G",
         "--model", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B"]  # fmt: skip


@pytest.mark.parametrize("tag", ["weight", "check,weigths", "no-such-stage"])
def test_an_unknown_tag_is_refused_before_any_work(tag: str) -> None:
    done = deploy("up", str(ROOT / "inventories" / "a100x4.ini"), "-t", tag)
    assert done.returncode == 2
    assert "weights" in done.stderr
    assert "webui" in done.stderr


@pytest.mark.parametrize(("stage", "up"), [("weights", False), ("engine", True)])
def test_the_service_is_called_up_only_after_the_engine_stage(
    stage: str, up: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = deploy("plan", str(ROOT / "inventories" / "a100x4.ini"), "--json")
    result = RunResult(True, False, {}, [], [], [], [StageTime(stage, 1.0)], 1.0, tmp_path / "log")
    outcome = Outcome(Plan.model_validate_json(plan.stdout), result, tmp_path, tmp_path, check=False)
    print_summary(outcome, as_json=False)
    assert ("The service is up" in capsys.readouterr().out) is up
    print_summary(outcome, as_json=True)
    assert json.loads(capsys.readouterr().out)["served"] is up


@pytest.mark.parametrize("locale", ["C", "xx_YY.UTF-8", "de_DE.ISO-8859-1"])
def test_every_locale_works(locale: str) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "LC_ALL": locale, "LANG": locale}
    argv = [DEPLOY, "plan", str(ROOT / "inventories" / "a100x4.ini")]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "TP 32" in done.stdout


@pytest.fixture(autouse=True)
def _without_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_a_model_that_does_not_fit_is_wrong_input(tmp_path: Path) -> None:
    inventory = tmp_path / "small.ini"
    inventory.write_text(
        "[head]\nnode1 ansible_host=192.0.2.11\n[all:vars]\ngpus=1\ngpu=A100-40G\n"
        "model=deepseek-ai/DeepSeek-R1\n"
    )
    for flags in ((), ("--json",)):
        done = deploy("plan", str(inventory), *flags)
        assert done.returncode == 2
        assert done.stdout  # the plan is printed, term by term


def test_a_state_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    done = deploy("lab", "status", str(ROOT / "inventories" / "lab.ini"), XDG_STATE_HOME=str(file))
    assert done.returncode == 2
    assert f"{file}/headfirst" in done.stderr
    assert "Set XDG_STATE_HOME" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("after", [0.15, 0.4, 0.8])
def test_ctrl_c_in_the_first_second_is_no_traceback(after: float) -> None:
    argv = [DEPLOY, "plan", str(ROOT / "inventories" / "a100x4.ini")]
    # A background job of a script ignores SIGINT; a terminal's foreground process does not.
    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    started = "import site" not in errors and "<frozen" not in errors
    assert "Traceback" not in errors or not started, errors


@pytest.mark.parametrize(
    ("flags", "wrong"),
    [
        (["--gpus", "eight"], "--gpus"),
        (["--gpus", "0"], "--gpus"),
        (["--gpu", "Voodoo2"], "Voodoo2"),
        (["--host", "192.0.2.300"], "192.0.2.300"),
        (["--host", "node1 ansible_user=evil"], "not a server's address"),
        (["--user", "a b"], "'a b'"),
        (["--model-source", "ftp"], "model_source"),
        (["--weights-dir", "data"], "weights_dir"),
        (["--gpu", "T4"], "GiB"),
        (["--model", "deepseek-ai/DeepSeek-R1"], "has no name"),
    ],
)
def test_init_refuses_wrong_values_and_writes_nothing(flags: list[str], wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.ini"
    done = deploy("init", str(path), *FLAGS, *flags)
    assert done.returncode == 2, done.stderr
    assert wrong in done.stderr
    assert "Traceback" not in done.stderr
    assert not path.exists()


def test_init_into_a_folder_that_is_missing(tmp_path: Path) -> None:
    done = deploy("init", str(tmp_path / "no" / "mine.ini"), *FLAGS)
    assert done.returncode == 2
    assert f"mkdir -p {tmp_path}/no" in done.stderr


def test_init_asks_again_until_the_plan_accepts(tmp_path: Path) -> None:
    path = tmp_path / "mine.ini"
    answers = [
        "nonsense!",
        "192.0.2.11",
        "ubuntu",
        "eight",
        "8",
        "A100",
        "A100-40G",
        "deepseek-ai/DeepSeek-R1",
    ]
    again = ["192.0.2.11", "ubuntu", "8", "A100-80G", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "y"]
    child, terminal = pty.fork()
    if child == 0:
        os.environ["HF_HUB_OFFLINE"] = "1"
        os.execv(DEPLOY, [str(DEPLOY), "init", str(path)])
    os.write(terminal, "".join(f"{answer}\n" for answer in (*answers, *again)).encode())
    shown = b""
    while True:
        try:
            if not (data := os.read(terminal, 4096)):
                break
        except OSError:  # the child has closed its terminal
            break
        shown += data
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, shown.decode()
    assert shown.count(b"GPUs per server") == 3
    assert b"refuses these answers" in shown
    assert deploy("plan", str(path)).returncode == 0


def test_init_copies_an_example(tmp_path: Path) -> None:
    path = tmp_path / "lab.ini"
    assert deploy("init", str(path), "--example", "lab").returncode == 0
    assert path.read_text() == (ROOT / "inventories" / "lab.ini").read_text()
    refused = deploy("init", str(tmp_path / "x.ini"), "--example", "nothing")
    assert refused.returncode == 2
    assert "a100x4" in refused.stderr


def test_hints_name_nothing_that_only_a_checkout_has(tmp_path: Path) -> None:
    package = ROOT / "py" / "headfirst"
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in package.rglob("*.py")
        for text in re.findall(r"hint=[^\n]*(?:docs/|inventories/)[^\n]*", path.read_text())
    ]
    assert found == []


def test_variables_are_listed_with_their_meaning() -> None:
    done = CliRunner().invoke(app, ["variables", "weights_dir", "--json"])
    (found, role) = json.loads(done.output)
    assert found["name"] == role["name"] == "weights_dir"
    assert (found["scope"], role["scope"]) == ("service", "weights")
    assert "every node" in found["description"]
    assert isinstance(CliRunner().invoke(app, ["variables", "nonsense"]).exception, InputError)


def test_help_imports_no_verb() -> None:
    code = "import sys, headfirst.control.cli.app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"paramiko", "docker", "ansible_runner", "httpx", "pydantic"} & set(loaded.split())
