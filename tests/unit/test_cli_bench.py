"""`deploy bench` and `deploy tune` as commands; the service is a stand-in behind no tunnel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from headfirst.common.errors import HeadfirstError, InputError
from headfirst.control.bench.result import read
from headfirst.control.cli.app import app
from headfirst.control.credentials.identity import cluster_folder
from headfirst.control.inventory.inventory import load
from headfirst.control.run import history
from measured_subject import SUBJECT
from openai_server import KEY, MODEL, serving
from typer.testing import CliRunner

LAB = str(Path(__file__).parents[2] / "inventories" / "lab.ini")
LAB_SUBJECT = SUBJECT.model_copy(
    update={"cluster": "lab", "service": MODEL, "model": MODEL, "hosts": ["node1"], "arguments": ["run"]}
)
QUICK = ("--concurrency", "1,3", "--requests", "4")


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Number {n}", "max_tokens": 32}) + "\n" for n in range(5)))
    return str(file)


def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *words: str, **server: Any) -> Any:
    """Run the verb on a stand-in; an error of Headfirst's is raised."""

    @contextmanager
    def direct(*_: object, timed: bool) -> Iterator[tuple[str, str]]:
        assert timed
        yield url, KEY

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with serving(**server) as (url, _):
        monkeypatch.setattr("headfirst.control.deployment.measuring.bench.open_api", direct)
        monkeypatch.setattr(
            "headfirst.control.deployment.measuring.chat_service.subject_of", lambda *_, **__: LAB_SUBJECT
        )
        done = CliRunner().invoke(app, ["bench", LAB, "-e", f"served_model_name={MODEL}", *words])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return SimpleNamespace(code=done.exit_code, out=done.output)


def test_a_run_prints_a_table_and_is_compared_with_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prompts: str
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    done = call(monkeypatch, tmp_path, *QUICK, "--dataset", prompts, "-o", str(one))
    assert done.code == 0, done.out
    assert "output tokens/s" in done.out
    result = read(one)
    assert [point.load.value for point in result.points] == [1, 3]
    assert [(point.requests, point.answer_tokens) for point in result.points] == [(4, 32), (4, 32)]
    assert result.subject == LAB_SUBJECT
    assert (result.dataset or "").startswith("prompts.jsonl sha256:")
    assert (one / "throughput.svg").read_text().count("<circle") == 2
    done = call(
        monkeypatch, tmp_path, *QUICK, "--dataset", prompts, "-o", str(other), "--compare", str(one), "--json"
    )
    compared = json.loads(done.out)["compared"]
    assert [row["load"]["value"] for row in compared] == [1, 3]
    assert all(row["output_rate"] > 0 for row in compared)
    assert (other / "throughput.svg").read_text().count("<circle") == 4
    runs = history.read(cluster_folder(load([Path(LAB)]))).runs
    assert [[stage.stage for stage in run.stages] for run in runs] == [["1", "3"]] * 2
    done = call(monkeypatch, tmp_path, *QUICK, "--dataset", prompts, "-o", str(one))
    assert done.out.count("By earlier runs about") == 2


def test_the_result_goes_into_the_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prompts: str
) -> None:
    words = ("--concurrency", "2", "--requests", "2", "--dataset", prompts, "--json")
    folder = Path(json.loads(call(monkeypatch, tmp_path, *words).out)["folder"])
    assert folder.is_relative_to(tmp_path / "state" / "headfirst" / "bench" / "lab")
    assert read(folder).points


def test_failed_requests_and_broken_promises_are_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prompts: str
) -> None:
    words = ("--concurrency", "1", "--requests", "4", "--dataset", prompts)
    done = call(monkeypatch, tmp_path, *words, faults=frozenset({"breaks-off"}))
    assert done.code == HeadfirstError.exit_code
    assert "failed at 1: 4 × out of memory" in done.out
    done = call(monkeypatch, tmp_path, *words, "--slo", "ttft=1ms,e2e=2ms")
    assert done.code == HeadfirstError.exit_code
    assert "No measured load keeps ttft p95 ≤ 0.001 s" in done.out


def refused(*words: str) -> InputError:
    done = CliRunner().invoke(app, [words[0], LAB, *words[1:]])
    assert isinstance(done.exception, InputError), done.output
    return done.exception


def test_what_cannot_be_meant_is_refused_before_any_work() -> None:
    assert "exclude" in refused("bench", "--rate", "1", "--concurrency", "1").what
    assert "exclude" in refused("bench", "--requests", "1", "--seconds", "1").what
    assert refused("bench", "--engines", "sglang,vlm").where == "--engines"
    assert refused("bench", "--engines", "sglang").where == "--engines"
    assert "--yes" in (refused("bench", "--engines", "sglang,vllm").hint or "")
    assert refused("bench", "--engines", "sglang,vllm", "--slo", "ttft=1s").hint
    assert refused("bench", "--compare", "/nowhere").where == "/nowhere"
    assert refused("bench", "--dataset", "/nowhere").where == "--dataset"
    assert "one load" in refused("tune", "--concurrency", "1,2").what
    assert "--yes" in (refused("tune").hint or "")
