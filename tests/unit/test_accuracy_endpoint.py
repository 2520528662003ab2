"""`--compare URL`: a service that Headfirst did not deploy, with a stand-in for evalscope."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.accuracy import asking, endpoint
from headfirst.control.accuracy.endpoint import KEY_VARIABLE
from headfirst.control.accuracy.questions import Question
from headfirst.control.accuracy.result import Endpoint, ExamAnswer, read
from headfirst.control.cli.app import app
from headfirst.control.deployment.measuring import accuracy, chat_service
from headfirst.control.evalscope import environment, process
from measured_subject import SUBJECT
from openai_server import CONTEXT, KEY, MODEL, serving
from typer.testing import CliRunner

LAB = str(Path(__file__).parents[2] / "inventories" / "lab.ini")
SECRET = "sk-of-nobody"


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://192.0.2.1:8000", "http://192.0.2.1:8000"),
        ("https://llm.example.com/v1/", "https://llm.example.com"),
        ("HTTPS://llm.example.com/openai/v1", "https://llm.example.com/openai"),
        ("http://[2001:db8::1]:8000/v1", "http://[2001:db8::1]:8000"),
    ],
)
def test_an_address_may_end_in_v1(given: str, expected: str) -> None:
    assert endpoint.is_url(given)
    assert endpoint.address(given, None, None).url == expected


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (f"https://user:{SECRET}@llm.example.com", "has a user name or a password"),
        (f"https://{SECRET}@llm.example.com", "has a user name or a password"),
        (f"https://llm.example.com/v1?api_key={SECRET}", "has parameters"),
        (f"https://llm.example.com/v1#{SECRET}", "has parameters"),
        ("https:///v1", "no host"),
        ("http://llm.example.com:port", "no host"),
        ("http://llm.example.com:99999", "no host"),
        ("http://llm example.com", "no host"),
        ("http://llm.example.com/\x1b[31m", "no host"),
    ],
)
def test_an_address_with_a_secret_or_without_a_host_is_refused(given: str, what: str) -> None:
    with pytest.raises(InputError, match=what) as refused:
        endpoint.address(given, None, None)
    assert SECRET not in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize("name", ["cluster.ini", "runs/before", "http", "ftp://host/x", "https.json"])
def test_what_is_no_address(name: str) -> None:
    assert not endpoint.is_url(name)


def test_the_key_is_of_a_file_or_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-of-the-file\n")
    assert endpoint.address("http://a", None, None).key is None
    monkeypatch.setenv(KEY_VARIABLE, "sk-of-the-environment")
    assert endpoint.address("http://a", None, None).key == "sk-of-the-environment"
    given = endpoint.address("http://a", None, file)
    assert given.key == "sk-of-the-file"
    assert "sk-of" not in repr(given)


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"two\nlines-of-a-key", b"\xff-of-a-key", "ключ-of-a-key".encode()]
)
def test_what_is_no_key_is_refused_without_its_text(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(InputError) as refused:
        endpoint.address("http://a", None, file)
    assert str(file) in str(refused.value)
    assert "of-a-key" not in str(refused.value)
    with pytest.raises(InputError, match="cannot be read"):
        endpoint.address("http://a", None, tmp_path / "none")


# The command


def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *words: str, **server: Any) -> Any:
    """`deploy test --accuracy … --compare URL`, where URL and the deployed service are one stand-in."""
    jobs: list[tuple[str, str, str, asking.Limits]] = []

    @contextmanager
    def direct(*_: object, **__: object) -> Iterator[tuple[str, str]]:
        yield url, KEY

    @contextmanager
    def running(_: Path, kind: str, url: str, key: str, log: Path) -> Iterator[tuple[str, str]]:
        assert kind == "questions"
        log.write_text("")
        yield url, key

    def ask(
        tool: tuple[str, str],
        model: str,
        listed: Sequence[Question],
        limits: asking.Limits,
        answered: Callable[[ExamAnswer], None],
    ) -> None:
        jobs.append((*tool, model, limits))
        for question in listed:
            answered(ExamAnswer(question=question.id, place=question.place, right=True, text="4"))

    data = tmp_path / "sums.jsonl"
    data.write_text('{"question": "2 + 2?", "answer": "4"}\n')
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(accuracy, "open_api", direct)
    monkeypatch.setattr(chat_service, "subject_of", lambda *_, **__: SUBJECT)
    monkeypatch.setattr(environment, "python", lambda _: Path("python"))
    monkeypatch.setattr(process, "running", running)
    monkeypatch.setattr(asking, "ask", ask)
    with serving(**server) as (url, state):
        there = [word.replace("URL", url) for word in words]
        extra = ["-e", f"served_model_name={MODEL}"]
        done = CliRunner().invoke(app, ["test", LAB, *extra, "--accuracy", str(data), *there])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return SimpleNamespace(code=done.exit_code, out=done.output, jobs=jobs, url=url, state=state)


def test_both_get_the_same_questions_and_the_run_is_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    done = call(monkeypatch, tmp_path, "--compare", "URL/v1", "-o", str(tmp_path / "run"))
    assert done.code == 0
    other, service = done.jobs
    assert other == service == (done.url, KEY, MODEL, service[3])
    assert service[3].max_tokens == CONTEXT // 2
    assert f"Against  {MODEL} at {done.url}; sums.jsonl" in done.out
    assert "No difference was found" in done.out
    host = done.url.removeprefix("http://").replace(":", "-")
    (file,) = (tmp_path / "state" / "headfirst" / "accuracy" / host).glob("*/accuracy.json")
    recorded = read(file)
    assert recorded.setup.subject == Endpoint(url=done.url, model=MODEL)
    assert KEY not in file.read_text()
    assert KEY not in done.out

    # The recorded run is one to compare with.
    done = call(monkeypatch, tmp_path, "--compare", str(file.parent), "--json")
    assert json.loads(done.out)["compared"]["questions"] == 1


def test_the_model_is_the_only_one_or_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    with pytest.raises(InputError, match=f"serves several models: {MODEL}, a") as refused:
        call(monkeypatch, tmp_path, "--compare", "URL", adapters=("a",))
    assert "--compare-model" in (refused.value.hint or "")
    done = call(monkeypatch, tmp_path, "--compare", "URL", "--compare-model", "a", adapters=("a",))
    assert done.jobs[0][2] == "a"
    with pytest.raises(InputError, match=f"does not serve b; it serves {MODEL}"):
        call(monkeypatch, tmp_path, "--compare", "URL", "--compare-model", "b")
    with pytest.raises(InputError, match="lists no model"):
        call(monkeypatch, tmp_path, "--compare", "URL", faults=frozenset({"no-models"}))


def test_what_the_service_lists_is_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    faults = frozenset({"no-models"})
    with pytest.raises(UntrustedError, match="control characters"):
        call(monkeypatch, tmp_path, "--compare", "URL", faults=faults, adapters=("\x1b[31mred",))
    with pytest.raises(HeadfirstError, match="not JSON"):
        call(monkeypatch, tmp_path, "--compare", "URL", faults=frozenset({"not-json"}))


def test_a_key_that_is_refused_has_the_next_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="401") as refused:
        call(monkeypatch, tmp_path, "--compare", "URL")
    assert KEY_VARIABLE in (refused.value.hint or "")
    assert "--compare-key-file" in (refused.value.hint or "")


def test_a_service_that_does_not_answer_is_named_before_the_first_question(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(NotReadyError, match=r"http://127\.0\.0\.1:1") as refused:
        call(monkeypatch, tmp_path, "--compare", "http://127.0.0.1:1")
    assert "/v1/models" in (refused.value.hint or "")


def test_a_key_without_tls_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    for url in ("https://192.0.2.1", "http://127.0.0.1:8000", "http://localhost", "http://[::1]"):
        assert endpoint.address(url, None, None).warning == ""
    assert "unencrypted" in endpoint.address("http://llm.example.com", None, None).warning
    monkeypatch.delenv(KEY_VARIABLE)
    assert endpoint.address("http://192.0.2.1:8000", None, None).warning == ""


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--compare", LAB, "--compare-model", "m"], "--compare-model needs --compare URL"),
        (["--compare-key-file", "key"], "--compare-key-file needs --compare URL"),
        (["--compare", "https://a:b@c"], "has a user name or a password"),
    ],
)
def test_options_of_an_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], what: str
) -> None:
    with pytest.raises(InputError, match=what):
        call(monkeypatch, tmp_path, *words)
