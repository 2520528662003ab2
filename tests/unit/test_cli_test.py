"""`deploy test` as a command: output, files, exit codes; the service is a stand-in behind no tunnel."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.cli.app import app
from headfirst.control.credentials.identity import cluster_folder
from headfirst.control.inventory.inventory import load
from headfirst.control.run import history
from headfirst.control.smoke.verdict import CASES
from openai_server import KEY, MODEL, serving
from typer.testing import CliRunner

LAB = str(Path(__file__).parents[2] / "inventories" / "lab.ini")


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def call(monkeypatch: pytest.MonkeyPatch, *words: str, **server: Any) -> Any:
    """Run the verb on a stand-in; an error of Headfirst's is raised."""

    @contextmanager
    def direct(*_: object, **__: object) -> Iterator[tuple[str, str]]:
        yield url, KEY

    with serving(**server) as (url, _):
        monkeypatch.setattr("headfirst.control.deployment.verbs.smoke.open_api", direct)
        done = CliRunner().invoke(app, ["test", LAB, "-e", f"served_model_name={MODEL}", *words])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return SimpleNamespace(code=done.exit_code, out=done.output)


def test_a_chat_service_of_sglang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = call(monkeypatch, "--json", "--junit", str(tmp_path / "smoke.xml"))
    report = json.loads(done.out)
    verdicts = {result["case"]: result["verdict"] for result in report["results"]}
    assert (done.code, report["passed"], report["engine"]) == (0, True, "SGLang")
    assert list(verdicts) == list(CASES)
    assert {name for name, verdict in verdicts.items() if verdict == "not supported"} == {
        "sampling.seed",
        "tools.auto",
        "tools.named",
        "reasoning.separate",
        "embeddings.single",
        "embeddings.batch",
        "embeddings.base64",
        "embeddings.dimensions",
        "rerank.order",
        "reward.score",
        "classify.labels",
        "vision.image",
        "lora.adapter",
        "errors.unknown-model",
    }
    assert ElementTree.parse(tmp_path / "smoke.xml").getroot().get("tests") == str(len(CASES))
    (run,) = history.read(cluster_folder(load([Path(LAB)]))).runs
    assert [stage.stage for stage in run.stages] == list(CASES)


def test_parsers_of_the_inventory_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    done = call(monkeypatch, "--only", "tools.*", "--json", "-e", "engine_args='--tool-call-parser qwen25'")
    report = json.loads(done.out)
    assert [result["verdict"] for result in report["results"]] == ["passed", "passed"]
    assert report["capabilities"]["tools"] == {"state": "on", "reason": "qwen25"}


def test_a_tool_that_is_not_called_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--only", "tools.auto", "-e", "engine_args='--tool-call-parser qwen25'")
    done = call(monkeypatch, *words, faults={"no-call"})
    assert done.code == 0
    assert "○ tools.auto" in done.out
    assert "0 passed, 0 failed, 1 not called, 0 not supported" in done.out.splitlines()[-1]


def test_a_named_tool_that_fails_has_the_line_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--only", "tools.named", "-e", "engine_args='--tool-call-parser qwen25'")
    done = call(monkeypatch, *words, faults={"no-call"})
    assert done.code == 1
    assert "engine_args sets the parser qwen25: write another one there, or none." in done.out


def test_without_a_parser_the_line_is_parsers_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    done = call(monkeypatch, "--only", "tools.*", "--json", "-e", "parsers=none")
    hints = {(result["verdict"], result["hint"]) for result in json.loads(done.out)["results"]}
    assert (done.code, hints) == (0, {("not supported", "Write parsers=auto into the inventory.")})


def test_a_failure_has_exit_code_1_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    done = call(monkeypatch, "--only", "sampling.n", "--only", "chat.answer", faults={"ignores-n"})
    assert done.code == 1
    assert "✓ chat.answer" in done.out
    assert "✗ sampling.n" in done.out
    assert "\nTools: off (" in done.out
    assert done.out.splitlines()[-1].startswith(f"Failed. {MODEL}: 1 passed, 1 failed, 0 not called, ")


def test_a_service_that_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotReadyError, match="503") as caught:
        call(monkeypatch, faults={"not-ready"})
    assert caught.value.exit_code == 3


def test_the_list_asks_nothing() -> None:
    done = CliRunner().invoke(app, ["test", "--list", "--only", "chat.*", "--json"])
    listed = json.loads(done.output)
    assert [entry["case"] for entry in listed] == ["chat.answer", "chat.turns", "chat.system"]
    assert all(entry["title"] for entry in listed)
    assert "chat.answer" in CliRunner().invoke(app, ["test", "--list"]).output


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--service", "other"], "no service is called other"),
        (["--only", "nothing"], "no case matches"),
        (["--junit", "/no/such/folder/x.xml"], "does not exist"),
    ],
)
def test_wrong_input(monkeypatch: pytest.MonkeyPatch, words: list[str], what: str) -> None:
    with pytest.raises(InputError, match=what):
        call(monkeypatch, *words)


def test_other_verbs_do_not_load_the_client() -> None:
    script = "import sys, headfirst.control.cli.app; sys.exit('openai' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
