"""Mistakes on the command line end with what is wrong, where, and what to type; never with a traceback."""

from __future__ import annotations

import inspect
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from command import deploy
from headfirst.common.errors import InputError
from headfirst.control.cli.app import app
from headfirst.control.cli.up import print_summary
from headfirst.control.deployment.verbs.up import UpOutcome
from headfirst.control.inventory.inventory import load
from headfirst.control.run.events import Finding
from headfirst.control.run.result import RunResult, StageTime
from headfirst.decide.cluster.settings import ClusterSettings, HostSettings, ServiceSettings
from headfirst.decide.plan.types import Plan
from typer.main import get_command
from typer.testing import CliRunner

pytestmark = pytest.mark.usefixtures("no_hub")

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
    repaired = Finding("weights-repaired", "warning", "node02", "1 file is repaired", fix="Stop engine.")
    result = RunResult(True, False, {}, [], [], [repaired], [StageTime(stage, 1.0)], 1.0, tmp_path / "log")
    outcome = UpOutcome(Plan.model_validate_json(plan.stdout), result, tmp_path, tmp_path, check=False)
    print_summary(outcome, as_json=False)
    said = capsys.readouterr().out
    assert ("The service is up" in said) is up
    assert "Repaired     node02: 1 file is repaired. Stop engine.\n" in said
    print_summary(outcome, as_json=True)
    assert json.loads(capsys.readouterr().out)["served"] is up


@pytest.mark.parametrize("locale", ["C", "xx_YY.UTF-8", "de_DE.ISO-8859-1"])
def test_every_locale_works(locale: str) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "LC_ALL": locale, "LANG": locale}
    argv = [DEPLOY, "plan", str(ROOT / "inventories" / "a100x4.ini")]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "TP 32" in done.stdout


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
    found, role = (each for each in json.loads(done.output) if each["name"] == "weights_dir")
    assert found["name"] == role["name"] == "weights_dir"
    assert (found["scope"], role["scope"]) == ("service", "weights")
    assert "every node" in found["description"]
    assert isinstance(CliRunner().invoke(app, ["variables", "nonsense"]).exception, InputError)


def test_help_imports_no_verb() -> None:
    code = "import sys, headfirst.control.cli.app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"paramiko", "docker", "ansible_runner", "httpx", "pydantic"} & set(loaded.split())


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("up x.ini --dry-run", "--check"),
        ("down x.ini --dryrun", "--check"),
        ("plan x.ini --dry-run", None),
        ("down x.ini --force", "--yes"),
        ("init x.ini --yes", "--force"),
        ("plan x.ini --yes", None),
        ("up x.ini --yes", None),
        ("status x.ini --output json", "--json"),
        ("status x.ini --format=json", "--json"),
        ("chat x.ini --output json", None),
        ("up x.ini --debug", "--verbose"),
        ("plan x.ini --verbose", None),
        ("keys list x.ini --verbose", None),
        ("up x.ini --tag check", "--tags"),
        ("up x.ini --chek", "--check"),
        ("up x.ini --node n1", "--limit"),
        ("up x.ini --quiet", None),
        ("--verbose up x.ini", None),
        ("--dry-run up x.ini", None),
        ("lab --force", None),
        ("--versoin", "--version"),
    ],
)
def test_a_word_of_another_tool_leads_to_the_option_or_to_none(words: str, meant: str | None) -> None:
    done = deploy(*words.split(), COLUMNS="200")
    assert (done.returncode, "No such option" in done.stderr) == (2, True), done
    assert re.findall(r"Did you mean (\S+)\?", done.stderr) == ([meant] if meant else []), done.stderr
    assert "Possible" not in done.stderr


@pytest.mark.parametrize("verb", ["plan", "render", "report", "bundle", "bench", "test"])
@pytest.mark.parametrize("words", ["--output json", "--output=yaml", "-o json"])
def test_a_format_is_not_taken_for_a_file(verb: str, words: str, tmp_path: Path) -> None:
    done = deploy(verb, "x.ini", *words.split(), cwd=tmp_path, COLUMNS="200")
    assert (done.returncode, "--json" in done.stderr, [*tmp_path.iterdir()]) == (2, True, []), done


def choices() -> list[tuple[str, str, list[str]]]:
    """Verb, option and values of each option with a few values."""
    return [
        (" ".join(verb), param.opts[0], list(map(str, get_args(literal))))
        for verb, command in commands(get_command(app))
        for param in command.params
        for annotation in [inspect.get_annotations(command.callback, eval_str=True).get(param.name)]
        for literal in literals(annotation)
    ]


def literals(annotation: Any) -> list[Any]:
    parts = get_args(annotation)
    return (
        [annotation]
        if get_origin(annotation) is Literal
        else [each for part in parts for each in literals(part)]
    )


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        yield from (
            commands(command, (*words, name)) if hasattr(command, "commands") else [((*words, name), command)]
        )


@pytest.mark.parametrize(("verb", "option", "values"), choices())
def test_a_bad_value_of_an_option_is_answered_with_the_good_ones(
    verb: str, option: str, values: list[str]
) -> None:
    done = deploy(*verb.split(), "x.ini", option, "helm", COLUMNS="300")
    assert done.returncode == 2
    assert [value for value in values if f"'{value}'" not in done.stderr] == []
    assert "Value error" not in done.stderr


SETTINGS = {
    name: field
    for kind in (ClusterSettings, ServiceSettings, HostSettings)
    for name, field in kind.model_fields.items()
}


@pytest.mark.parametrize(
    "name", [n for n, f in SETTINGS.items() if literals(f.annotation) or f.annotation is bool]
)
def test_a_bad_value_of_a_setting_is_answered_with_the_good_ones(name: str, tmp_path: Path) -> None:
    values = [f"'{value}'" for literal in literals(SETTINGS[name].annotation) for value in get_args(literal)]
    path = tmp_path / "mine.ini"
    path.write_text(f"[head]\nn1 ansible_host=192.0.2.1\n[all:vars]\nmodel=org/m\n{name}=helm\n")
    with pytest.raises(InputError) as refused:
        load([path])
    assert [value for value in values or ["true or false"] if value not in refused.value.what] == []
    assert "rror" not in refused.value.what
    assert refused.value.where == f"{path}:5"


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("/data/x", "model_source=path"),
        ("./x", "model_source=path"),
        ("~/x", "model_source=path"),
        ("file:///data/x", "model_source=path"),
        ("https://huggingface.co/Qwen/Qwen3-8B/", "model=Qwen/Qwen3-8B"),
    ],
)
def test_a_folder_or_an_address_asks_no_hub(model: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.ini"
    path.write_text(
        "[head]\nn1 ansible_host=192.0.2.1\n[all:vars]\ngpus=8\ngpu=A100-80G\n" + f"model={model}\n"
    )
    done = deploy("plan", str(path), HF_HUB_OFFLINE="")
    assert (done.returncode, f"{path}:6" in done.stderr, hint in done.stderr) == (2, True, True), done
    flags = ["--host", "192.0.2.1", "--user", "u", "--gpus", "8", "--gpu", "A100-80G", "--model", model]
    done = deploy("init", str(tmp_path / "new.ini"), *flags, HF_HUB_OFFLINE="")
    assert (done.returncode, "hub" in done.stderr) == (2, True), done


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("check a100x4.ini --wait 5", "--wait is for --comm"),
        ("restore a100x4.ini chats-1 --list", "--list shows all backups"),
        ("init new.ini --example a100x4 --gpus 4", "as it is, without --gpus"),
        ("init new.ini --host 192.0.2.1 --user u --gpus 8 --gpu H100-80G --engine x", "Unknown engine"),
        ("init new.ini --host 192.0.2.1 --user u --gpus 8 --gpu H100-80G --weights-dir /etc", "weights_dir"),
        ("remove missing.ini node1", "no such inventory"),
    ],
)
def test_what_a_verb_would_ignore_is_refused(tmp_path: Path, words: str, what: str) -> None:
    (tmp_path / "a100x4.ini").write_text((ROOT / "inventories" / "a100x4.ini").read_text())
    done = deploy(*words.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert what in " ".join(done.stderr.split())
    assert not (tmp_path / "new.ini").exists()
