"""`deploy test --accuracy` with evalscope in its own environment, against the stand-in for an engine."""

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from headfirst.common.errors import HeadfirstError, InputError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.accuracy import asking, questions
from headfirst.control.accuracy.endpoint import KEY_VARIABLE
from headfirst.control.accuracy.questions import Question
from headfirst.control.accuracy.result import FILE, JOURNAL, Endpoint, ExamAnswer, read
from headfirst.control.cli.app import app
from headfirst.control.credentials import local_ca
from headfirst.control.evalscope import environment, process
from headfirst.control.smoke.api import Api, ServiceTarget
from headfirst.decide.engines.base import RequestDialect
from measured_subject import SUBJECT
from openai_server import CONTEXT, KEY, MODEL, Server, State, serving
from typer.testing import CliRunner

LAB = str(Path(__file__).parents[2] / "inventories" / "lab.ini")
LIMITS = asking.Limits(max_tokens=20, concurrency=4, timeout_s=30)
SUMS = 12
RIGHT = {f"What is {n} and 1?": f"It is \\boxed{{{n + 1}}}." for n in range(SUMS)}
WRONG = dict.fromkeys(RIGHT, "It is \\boxed{-1}.")


@pytest.fixture(scope="session")
def python() -> Path:
    return environment.python(print)


@pytest.fixture
def sums(tmp_path: Path) -> str:
    """SUMS questions in GSM8K's form."""
    file = tmp_path / "sums.jsonl"
    lines = [{"question": text, "answer": f"Add one.\n#### {n + 1}"} for n, text in enumerate(RIGHT)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(file)


def asked(
    python: Path,
    url: str,
    key: str,
    log: Path,
    listed: Sequence[Question],
    answered: Callable[[ExamAnswer], None],
) -> None:
    with process.running(python, "questions", url, key, log) as tool:
        asking.ask(tool, MODEL, listed, LIMITS, answered)


def ask(
    python: Path, log: Path, given: list[dict[str, Any]], **server: Any
) -> tuple[dict[str, ExamAnswer], State]:
    """The answers to the questions of a file, by question, and what the server has seen."""
    file = log.with_name("questions.jsonl")
    file.write_text("".join(json.dumps(line) + "\n" for line in given))
    listed = questions.read(file)
    answers: list[ExamAnswer] = []
    with serving(**server) as (url, state):
        asked(python, url, KEY, log, listed, answers.append)
    names = {question.id: question.question for question in listed}
    return {names[answer.question]: answer for answer in answers}, state


def test_each_kind_of_question_is_scored(python: Path, tmp_path: Path) -> None:
    given = [
        {"question": "How many?", "answer": "Long ago there were 1200.\n#### 1,234"},
        {"question": "How few?", "answer": 3},
        {"question": "Which river?", "choices": ["Rhine", "Nile"], "answer": 1},
        {"question": "Which hill?", "A": "high", "B": "low", "C": "flat", "answer": "C"},
        {"question": "Capital of France?", "answer": "Paris"},
        {"question": "Capital of Norway?", "answer": "Oslo"},
        {"question": "A long story?", "answer": "The end"},
    ]
    texts = {
        "How many?": "They are 1000 + 234, so \\boxed{1234}.",
        "How few?": "I count \\boxed{4}.",
        "Which river?": "Thinking of A. ANSWER: B",
        "Which hill?": "ANSWER: A",
        "Capital of France?": "Oslo?</think> paris",
        "Capital of Norway?": "Oslo, of course",
        "A long story?": "word " * 30,
    }
    answers, state = ask(python, tmp_path / "log", given, answers=texts)
    assert {name: answer.right for name, answer in answers.items()} == {
        "How many?": True,
        "How few?": False,
        "Which river?": True,
        "Which hill?": False,
        "Capital of France?": True,
        "Capital of Norway?": False,
        "A long story?": False,
    }
    assert answers["Which river?"].extracted == "B"
    assert answers["How few?"].text == "I count \\boxed{4}."
    assert [name for name, answer in answers.items() if answer.cut] == ["A long story?"]
    assert answers["How few?"].place == "questions.jsonl:2"
    assert {(body["temperature"], body["max_tokens"], body["model"]) for body in state.bodies} == {
        (0, 20, MODEL)
    }
    prompts = [body["messages"] for body in state.bodies]
    assert [{"role": "user", "content": "Capital of France?"}] in prompts
    assert any("A) Rhine\nB) Nile" in messages[0]["content"] for messages in prompts)


def test_a_failed_request_is_no_wrong_answer_and_the_key_is_in_no_output(
    python: Path, tmp_path: Path
) -> None:
    given = [{"question": "word " * CONTEXT, "answer": "no"}, {"question": "Short?", "answer": "no"}]
    answers, _ = ask(python, tmp_path / "log", given)
    assert [bool(answer.error) for answer in answers.values()].count(True) == 1
    failed = next(answer for answer in answers.values() if answer.error)
    assert "longer than the context" in (failed.error or "")
    assert "HTTP" in (tmp_path / "log").read_text()
    assert KEY not in (tmp_path / "log").read_text()


def test_a_wrong_key_is_the_reason(python: Path, tmp_path: Path) -> None:
    listed = [Question(place="a:1", kind="text", question="Short?", answer="no")]
    answers: list[ExamAnswer] = []
    with serving() as (url, _):
        asked(python, url, "sk-wrong", tmp_path / "log", listed, answers.append)
    assert "401" in (answers[0].error or "")


def test_a_private_authority_signs_for_a_service_of_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, python: Path
) -> None:
    issued = local_ca.new_authority("others", ["127.0.0.1"]).shared
    for name, text in (("ca", issued.ca_certificate), ("crt", issued.certificate), ("key", issued.key)):
        (tmp_path / name).write_text(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    accept = Server.get_request

    def encrypted(server: Server) -> Any:
        connection, address = accept(server)
        return context.wrap_socket(connection, server_side=True), address

    monkeypatch.setattr(Server, "get_request", encrypted)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca"))
    listed = [Question(place="a:1", kind="text", question="Short?", answer="no")]
    answers: list[ExamAnswer] = []
    with serving(answers={"Short?": "no"}) as (plain, _):
        url = plain.replace("http:", "https:")
        with Api(url, KEY, ServiceTarget(MODEL, "chat", "", RequestDialect(None, None)), 30) as api:
            assert [model.id for model in api.models().data] == [MODEL]
        asked(python, url, KEY, tmp_path / "log", listed, answers.append)
    assert [(answer.right, answer.error) for answer in answers] == [(True, None)]


@pytest.mark.parametrize(
    "printed",
    [
        '{"result": {"number": 1, "text": "x"}}',
        '{"result": {"number": 0, "right": "perhaps"}}',
        '{"result": {"number": 0, "more": 1}}',
        '{"result": []}',
        "no json",
    ],
)
def test_what_the_tool_prints_is_validated(printed: str, tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        """os.write(int(sys.argv[3]), b'{"ready": true}\\n')\ninput()\n"""
        f"os.write(int(sys.argv[3]), {printed.encode()!r} + b'\\n')\n"
    )
    script.chmod(0o755)
    listed = [Question(place="a:1", kind="text", question="Short?", answer="no")]
    with pytest.raises(UntrustedError):
        asked(script, "http://127.0.0.1:1", KEY, tmp_path / "log", listed, lambda _: None)


# The command


Call = Callable[..., Any]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, python: Path) -> Call:
    """Run `deploy test --accuracy` on a stand-in; an error of Headfirst's is raised."""
    package = "headfirst.control.deployment.measuring"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(f"{package}.chat_service.subject_of", lambda *_, **__: SUBJECT)

    def called(*words: str, **server: Any) -> Any:
        with serving(**server) as (url, state):
            direct = nullcontext((url, KEY))
            monkeypatch.setattr(f"{package}.accuracy.open_api", lambda *_, **__: direct)
            done = CliRunner().invoke(app, ["test", LAB, "-e", f"served_model_name={MODEL}", *words])
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return SimpleNamespace(code=done.exit_code, out=done.output, sent=len(state.bodies))

    return called


def test_a_service_is_compared_with_a_recorded_run(call: Call, tmp_path: Path, sums: str) -> None:
    before, same, worse = (tmp_path / name for name in ("before", "same", "worse"))
    done = call("--accuracy", sums, "-o", str(before), answers=RIGHT)
    assert (done.code, done.sent) == (0, SUMS)
    assert "100.0 %: 12 of 12 answers (95 %: 75.8 % to 100.0 %)" in done.out
    assert (before / FILE).stat().st_mode & 0o777 == 0o600
    assert KEY not in (before / FILE).read_text()
    assert not (before / JOURNAL).exists()
    assert read(before).setup.max_tokens == CONTEXT // 2

    options = ("--accuracy", sums, "--compare", str(before))
    done = call(*options, "-o", str(same), answers=RIGHT)
    assert done.code == 0
    assert "0 right answers lost, 0 gained (p = 1); 12 answers are equal word for word" in done.out
    assert "No difference was found: at most" in done.out

    others = tmp_path / "others.jsonl"
    others.write_text('{"question": "Another?", "answer": "yes"}')
    with pytest.raises(InputError, match="answered none of these questions"):
        call("--accuracy", str(others), *options[2:])

    mixed = {**RIGHT, **dict(list(WRONG.items())[:8])}
    done = call(*options, "-o", str(worse), "--json", answers=mixed)
    summary = json.loads(done.out)
    compared = summary["compared"]
    assert (done.code, compared["verdict"], summary["score"]["right"]) == (1, "worse", 4)
    assert (len(compared["lost"]), compared["gained"], compared["equal"]) == (8, [], 4)
    assert compared["lost"][0] == "sums.jsonl:1"
    assert compared["p"] == pytest.approx(2 / 2**8)


def test_two_services_are_asked_where_an_inventory_is_given(call: Call, tmp_path: Path, sums: str) -> None:
    options = ("--accuracy", sums, "--questions", "5", "--compare", LAB, "--max-tokens", "9", "--json")
    with pytest.raises(InputError, match="no service is called"):
        call(*options, "--service", "other")
    with pytest.raises(HeadfirstError, match=r"answered no question: .*`headfirst-demo` does not exist"):
        call(*options)
    done = call(*options, answers=RIGHT, faults=frozenset({"any-model"}))
    summary = json.loads(done.out)
    assert (done.code, summary["compared"]["questions"], summary["setup"]["max_tokens"]) == (0, 5, 9)
    assert read(Path(summary["folder"])).score.right == 5


def test_a_service_of_others_is_asked_at_its_address(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sums: str
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    with serving(answers=WRONG) as (address, state):
        options = ("--accuracy", sums, "--compare", f"{address}/v1", "--json")
        done = call(*options, answers=RIGHT)
    assert [body["max_tokens"] for body in state.bodies] == [CONTEXT // 2] * SUMS
    assert (done.code, json.loads(done.out)["compared"]["verdict"]) == (0, "better")
    (recorded,) = (tmp_path / "state" / "headfirst" / "accuracy").glob(f"127.0.0.1-*/*/{FILE}")
    assert read(recorded).setup.subject == Endpoint(url=address, model=MODEL)
    assert KEY not in recorded.read_text()
    done = call("--accuracy", sums, "--compare", str(recorded), answers=RIGHT)
    assert f"Against  {MODEL} at {address}" in done.out


def test_questions_without_an_answer_are_asked_again(call: Call, tmp_path: Path, sums: str) -> None:
    options = ("--accuracy", sums, "-o", str(tmp_path / "run"), "--concurrency", "1")
    done = call(*options, answers=RIGHT, faults=frozenset({"refuses-odd"}))
    assert done.code == 1
    assert "6 questions have no answer" in done.out
    assert "an odd request" in done.out
    assert (tmp_path / "run" / JOURNAL).stat().st_mode & 0o777 == 0o600
    with (tmp_path / "run" / JOURNAL).open("a") as journal:
        journal.write('{"question": "half a li')
    done = call(*options, answers=RIGHT)
    assert (done.code, done.sent) == (0, 6)
    assert "An earlier run has answered 6 of 12 questions" in done.out
    assert read(tmp_path / "run").score.right == 12
    assert not (tmp_path / "run" / JOURNAL).exists()


def test_a_run_continues_with_its_own_questions_only(call: Call, tmp_path: Path, sums: str) -> None:
    options = ("--accuracy", sums, "-o", str(tmp_path / "run"))
    call(*options, faults=frozenset({"refuses-odd"}))
    with pytest.raises(InputError, match="another service, data set or limit"):
        call(*options, "--questions", "5")
