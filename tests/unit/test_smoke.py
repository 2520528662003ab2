"""Every case of `deploy test` against a server that works, and against one that is broken in its way."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.smoke import runner
from headfirst.control.smoke.api import Api, Parser, ServiceTarget
from headfirst.control.smoke.verdict import CASES, Case, CaseResult, SmokeReport, write_junit
from headfirst.decide.engines.base import ReadinessProbe, RequestDialect, ScoreRequest, Task
from headfirst.decide.engines.presets import Purpose
from openai_server import KEY, MODEL, serving

FULL = RequestDialect(
    tool_parser="hermes",
    reasoning_parser="deepseek-r1",
    regex={"regex": "{pattern}"},
    grammar={"ebnf": "{pattern}"},
    rerank=ScoreRequest("/v1/rerank", texts="documents", rows=(), score=("score",)),
    reward=ScoreRequest("/classify", texts="text", rows=(), score=("embedding",)),
    classify="/v1/classify",
    adapter="{model}:{adapter}",
)
READINESS = ReadinessProbe("/health", "", {}, ())
TARGET = ServiceTarget(MODEL, "chat", "Stand-in", FULL)
BARE = RequestDialect(tool_parser=None, reasoning_parser=None)
# What a server must be for a case to pass.
SERVERS: dict[str, dict[str, Any]] = {
    "embeddings": {"task": "embedding"},
    "rerank": {"task": "rerank"},
    "reward": {"task": "reward"},
    "classify": {"task": "reward"},
    "vision": {"task": "vision"},
    "lora": {"adapters": ("legal",)},
    "reasoning": {"thinks": True},
}
# What breaks a case: the fault, and a word of the line that names it.
BROKEN = [
    ("models.listed", "no-models", "not among them"),
    ("chat.answer", "silent", "no text"),
    ("chat.answer", "not-json", "JSON"),
    ("chat.answer", "wrong-types", "choices"),
    ("chat.answer", "a-list", "not what the API defines"),
    ("chat.answer", "too-large", "larger than"),
    ("chat.answer", "compressed", "compressed"),
    ("chat.turns", "only-last-message", "template leaves"),
    ("chat.system", "only-last-message", "template leaves"),
    ("completions.answer", "silent", "no token"),
    ("sampling.greedy", "greedy-differs", "differ"),
    ("sampling.temperature", "ignores-temperature", "does not read"),
    ("sampling.top-p", "ignores-top_p", "differ"),
    ("sampling.presence-penalty", "ignores-presence_penalty", "does not read"),
    ("sampling.frequency-penalty", "ignores-frequency_penalty", "does not read"),
    ("sampling.n", "ignores-n", "indices"),
    ("sampling.n", "empty-choice", "no text"),
    ("sampling.seed", "ignores-seed", "differ"),
    ("sampling.stop", "ignores-stop", "stop text"),
    ("sampling.stop", "includes-stop", "stop text"),
    ("sampling.stop", "never-stop", "finish_reason"),
    ("sampling.max-tokens", "ignores-max_tokens", "16 tokens"),
    ("sampling.max-tokens", "wrong-finish", "finish_reason"),
    ("sampling.max-tokens", "counts-wrong", "tokens with"),
    ("sampling.logprobs", "no-logprobs", "0 logprobs"),
    ("sampling.logprobs", "positive-logprobs", "above 0"),
    ("sampling.logprobs", "one-logprob", "not 2"),
    ("sampling.logprobs", "unlikely-token", "likeliest"),
    ("stream.usage", "one-piece", "1 pieces"),
    ("stream.usage", "no-finish", "0 events"),
    ("stream.usage", "no-usage", "no usage"),
    ("stream.usage", "breaks-off", "out of memory"),
    ("stream.usage", "broken-event", "JSON"),
    ("stream.abort", "hangs-on-abort", "hangs"),
    ("structured.json-schema", "ignores-grammar", "not JSON"),
    ("structured.json-schema", "wrong-schema", "breaks the schema"),
    ("structured.json-schema", "never-stop", "no end"),
    ("structured.regex", "ignores-grammar", "not match"),
    ("structured.grammar", "ignores-grammar", "not match"),
    ("tools.auto", "call-in-content", "leaves the call in the answer"),
    ("tools.auto", "other-tool", "not a call"),
    ("tools.auto", "broken-arguments", "not JSON"),
    ("tools.named", "no-call", "no tool is called"),
    ("tools.named", "other-tool", "not a call"),
    ("reasoning.separate", "inline-thinking", "holds the thinking"),
    ("reasoning.separate", "thinks-never", "does not think"),
    ("embeddings.single", "zero-vector", "all zero"),
    ("embeddings.single", "nan-vector", "not what the API defines"),
    ("embeddings.batch", "loses-text", "2 vectors"),
    ("embeddings.batch", "one-vector", "one vector"),
    ("embeddings.batch", "place-matters", "text alone"),
    ("embeddings.base64", "never-base64", "not encoded"),
    ("embeddings.base64", "no-base64", "not base64"),
    ("embeddings.base64", "other-base64", "different vectors"),
    ("embeddings.dimensions", "ignores-dimensions", "not 4"),
    ("rerank.order", "wrong-order", "best document"),
    ("rerank.order", "loses-document", "2 results"),
    ("rerank.order", "no-index", "index"),
    ("rerank.order", "no-score", "no finite score"),
    ("rerank.order", "no-rows", "no list"),
    ("reward.score", "one-score", "one score"),
    ("reward.score", "loses-score", "2 scores"),
    ("classify.labels", "loses-label", "2 labels"),
    ("classify.labels", "more-than-one", "parts of 1"),
    ("vision.image", "blind", "no tokens"),
    ("lora.adapter", "broken-adapter", "500"),
    ("errors.wrong-key", "any-key-accepted", "answered"),
    ("errors.no-key", "no-key-accepted", "answered"),
    ("errors.no-key", "forbidden", "403"),
    ("errors.unknown-model", "any-model", "another model"),
    ("errors.unknown-model", "anonymous-model", "does not contain the model's name"),
    ("errors.empty-messages", "empty-accepted", "answered"),
    ("limits.long-input", "half-context", "too long"),
    ("limits.long-input", "counts-no-prompt", "words"),
    ("limits.too-long", "long-input-cut", "are answered"),
    ("limits.too-long", "crashes-on-long-input", "500"),
    ("limits.too-long", "hangs-on-long-input", "hangs"),
    ("limits.at-once", "crowd-refused", "of 32"),
]


def server(name: str) -> dict[str, Any]:
    return SERVERS.get(name.partition(".")[0], {})


class Watched:
    """Follows a run in a list."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def started(self, case: Case) -> None:
        self.seen.append(case.name)

    def ended(self, result: CaseResult) -> None:
        self.seen.append(result.verdict)


def judged(
    name: str,
    *,
    dialect: RequestDialect = FULL,
    planned: Task | None = None,
    parsers: Mapping[Purpose, Parser] | None = None,
    **server: Any,
) -> CaseResult:
    with serving(**server) as (url, state):
        task: Any = planned or state.task
        target = ServiceTarget(MODEL, task, "Stand-in", dialect, parsers or {})
        with Api(url, KEY, target, 20) as api:
            [result] = runner.run(api, [CASES[name]], Watched(), str).results
    return result


@pytest.mark.parametrize("name", list(CASES))
def test_a_service_that_works_passes(name: str) -> None:
    found = judged(name, **server(name))
    assert (found.verdict, found.case) == ("passed", name), found.why
    assert found.why


@pytest.mark.parametrize(("name", "fault", "words"), BROKEN)
def test_a_case_fails_where_its_feature_is_broken(name: str, fault: str, words: str) -> None:
    found = judged(name, faults=frozenset({fault}), **server(name))
    assert found.verdict == "failed", found.why
    assert words in found.why


def test_every_case_has_a_test_that_breaks_it() -> None:
    assert {name for name, _, _ in BROKEN} == set(CASES)


@pytest.mark.parametrize("folder", ["docs", "docs/zh-CN"])
def test_the_documentation_has_every_case(folder: str) -> None:
    page = (Path(__file__).parents[2] / folder / "smoke-tests.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z0-9.-]+)` \|", page, re.MULTILINE) == list(CASES)


# Rule 1 and 2: the engine has no such request, or the service was started without what it needs.
@pytest.mark.parametrize(
    ("name", "words", "task"),
    [
        ("structured.regex", "no such request", "chat"),
        ("structured.grammar", "no such request", "chat"),
        ("rerank.order", "no such request", "rerank"),
        ("reward.score", "no such request", "reward"),
        ("classify.labels", "no such request", "reward"),
        ("tools.auto", "without a tool parser", "chat"),
        ("tools.named", "without a tool parser", "chat"),
        ("reasoning.separate", "without a reasoning parser", "chat"),
        ("lora.adapter", "no LoRA adapter", "chat"),
    ],
)
def test_what_the_engine_or_the_start_lacks(name: str, words: str, task: str) -> None:
    found = judged(name, dialect=BARE, task=task)  # type: ignore[arg-type]
    assert found.verdict == "not supported"
    assert words in found.why


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("sampling.seed", "seed"),
        ("sampling.n", "n"),
        ("sampling.top-p", "top_p"),
        ("sampling.temperature", "temperature"),
        ("sampling.presence-penalty", "presence_penalty"),
        ("sampling.frequency-penalty", "frequency_penalty"),
        ("sampling.logprobs", "logprobs"),
        ("errors.unknown-model", "model"),
    ],
)
def test_a_parameter_that_the_engine_ignores(name: str, parameter: str) -> None:
    dialect = RequestDialect(None, None, ignored={parameter: "it has none"})
    found = judged(name, dialect=dialect)
    assert (found.verdict, found.why) == ("not supported", "it has none")


def test_a_case_that_the_arguments_rule_out_is_not_run() -> None:
    dialect = RequestDialect(None, None, left_out={"vision.image": "it takes no images"})
    found = judged("vision.image", dialect=dialect, task="vision", faults=frozenset({"blind"}))
    assert (found.verdict, found.why) == ("not supported", "it takes no images")


def test_as_many_requests_at_once_as_the_service_accepts() -> None:
    assert judged("limits.at-once", dialect=RequestDialect(None, None, at_once=3)).why == "3 answers"


# Rule 3: another task.
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "chat" not in case.tasks])
def test_a_case_of_another_task_is_refused_by_a_chat_service(name: str) -> None:
    found = judged(name)
    assert found.verdict == "not supported", found.why
    assert "a chat service" in found.why


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "embedding" not in case.tasks])
def test_no_case_of_another_task_fails_on_an_embedding_service(name: str) -> None:
    found = judged(name, **{**server(name), "task": "embedding"})
    assert found.verdict == "not supported", found.why


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if len(case.tasks) == 1])
def test_a_refusal_by_a_service_of_that_task_is_a_failure(name: str) -> None:
    [task] = CASES[name].tasks
    found = judged(name, planned=task)  # the server itself is one for chats
    assert found.verdict == "failed", found.why


def test_a_crash_on_another_task_is_a_failure() -> None:
    found = judged("embeddings.single", faults=frozenset({"crash-on-other-task"}))
    assert found.verdict == "failed"
    assert "500" in found.why


# Rule 4: a refusal whose words a case names itself.
@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("structured.json-schema", {"grammars": False}),
        ("structured.regex", {"grammars": False}),
        ("structured.grammar", {"grammars": False}),
        ("chat.system", {"faults": frozenset({"no-system"})}),
        ("embeddings.dimensions", {"task": "embedding", "matryoshka": False}),
        ("classify.labels", {"task": "reward", "faults": frozenset({"no-classes"})}),
    ],
)
def test_a_refusal_that_names_the_model_or_the_start(name: str, server: dict[str, Any]) -> None:
    assert judged(name, **server).verdict == "not supported"


def parsers(line: str = "", absent: str = "") -> dict[Purpose, Parser]:
    return {"tools": Parser(absent, line), "reasoning": Parser(absent, line)}


def test_a_tool_that_the_model_was_free_not_to_call() -> None:
    found = judged("tools.auto", faults=frozenset({"no-call"}), parsers=parsers("parsers=none"))
    assert (found.verdict, found.hint) == ("not called", "")
    assert "answers with text" in found.why


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("tools.auto", "broken-arguments"),
        ("tools.named", "no-call"),
        ("tools.named", "broken-arguments"),
        ("tools.named", "refuses-tools"),
        ("reasoning.separate", "inline-thinking"),
    ],
)
def test_a_planned_parser_that_fails_has_the_line_to_write(name: str, fault: str) -> None:
    found = judged(name, faults=frozenset({fault}), parsers=parsers("Write parsers=none."), **server(name))
    assert (found.verdict, found.hint) == ("failed", "Write parsers=none.")


def test_a_named_tool_that_is_not_called_has_what_the_engine_does_about_it() -> None:
    dialect = RequestDialect("hermes", None, named_tool="nothing constrains the answer")
    found = judged("tools.named", dialect=dialect, faults=frozenset({"no-call"}))
    assert "nothing constrains the answer" in found.why


@pytest.mark.parametrize("name", ["tools.auto", "tools.named", "reasoning.separate"])
def test_a_parser_that_is_not_planned_has_the_reason_and_the_line(name: str) -> None:
    found = judged(name, dialect=BARE, parsers=parsers("Write parsers=auto.", "parsers=none"))
    assert (found.verdict, found.hint) == ("not supported", "Write parsers=auto.")
    assert found.why.endswith("parser: parsers=none")


def test_a_client_that_leaves_really_does() -> None:
    with serving() as (url, state), Api(url, KEY, TARGET, 5) as api:
        runner.run(api, [CASES["stream.abort"]], Watched(), str)
        assert state.left.wait(5)


def test_thinking_that_must_be_asked_for() -> None:
    found = judged("reasoning.separate", thinks=True, faults=frozenset({"thinks-on-demand"}))
    assert found.verdict == "passed"


def test_a_context_that_is_not_reported() -> None:
    found = judged("limits.long-input", faults=frozenset({"no-models"}))
    assert (found.verdict, "does not report" in found.why) == ("not supported", True)


@pytest.mark.parametrize("slow", ["no answer", "no end"])
def test_an_answer_that_does_not_come(slow: str) -> None:
    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            if slow == "no end":
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
                while not ended.wait(0.1):
                    connection.sendall(b" ")
            ended.wait(10)

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=[listener], daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Api(url, KEY, TARGET, 1.0) as api:
            [found] = runner.run(api, [CASES["chat.answer"]], Watched(), str).results
        ended.set()
    assert (found.verdict, found.why) == ("failed", "no complete answer within 1 s")
    assert found.seconds < 8


def test_nothing_listens() -> None:
    with Api("http://127.0.0.1:1", KEY, TARGET, 5) as api:
        [found] = runner.run(api, [CASES["chat.answer"]], Watched(), str).results
        assert "connection was closed" in found.why
        with pytest.raises(NotReadyError, match="not ready"):
            api.require_ready(READINESS)


def test_a_service_that_still_starts() -> None:
    with (
        serving(faults=frozenset({"not-ready"})) as (url, _),
        Api(url, KEY, TARGET, 5) as api,
        pytest.raises(NotReadyError, match="503"),
    ):
        api.require_ready(READINESS)
    with serving() as (url, _), Api(url, KEY, TARGET, 5) as api:
        api.require_ready(READINESS)


def test_lines_have_no_secret_and_no_control_characters() -> None:
    def hostile(api: Api) -> str:
        return f"\x1b[2J{KEY}\nsecond \u202e line {'x' * 1000}"

    watched = Watched()
    with serving() as (url, _), Api(url, KEY, TARGET, 5) as api:
        case = Case("a.b", frozenset({"chat"}), hostile)
        report = runner.run(api, [case], watched, lambda text: text.replace(KEY, "***"))
    why = report.results[0].why
    assert why.startswith("\\x1b[2J*** second \\u202e line xx")
    assert (len(why) < 260, KEY in why) == (True, False)
    assert watched.seen == ["a.b", "passed"]


def test_the_environment_of_the_client_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin-of-the-user")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-user")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Secret: of-the-user")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with serving() as (url, state), Api(url, KEY, TARGET, 5) as api:
        api.chat()
    [headers] = state.headers
    assert not any("of-the-user" in value for value in headers.values())
    assert headers["Authorization"] == f"Bearer {KEY}"


def test_patterns_choose_cases() -> None:
    assert [case.name for case in runner.chosen(["chat.*", "limits.at-once"])] == [
        "chat.answer",
        "chat.turns",
        "chat.system",
        "limits.at-once",
    ]
    assert len(runner.chosen([])) == len(CASES)
    with pytest.raises(InputError, match="no case matches nothing"):
        runner.chosen(["nothing"])


def test_junit_is_what_ci_systems_read(tmp_path: Path) -> None:
    verdicts = ("passed", "failed", "not supported", "not called")
    results = [
        CaseResult(case=f"a.{number}", verdict=verdict, why='<why> & "how"', hint="x=1", seconds=1.5)  # type: ignore[arg-type]
        for number, verdict in enumerate(verdicts)
    ]
    report = SmokeReport(service="m", engine="E", task="chat", seconds=4.5, results=results)
    assert report.passed is False
    write_junit(report, tmp_path / "smoke.xml")
    suite = ElementTree.parse(tmp_path / "smoke.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "2")
    assert [entry[0].tag for entry in suite] == ["system-out", "failure", "skipped", "skipped"]
    assert (suite[1][0].text, suite[3][0].get("message")) == ("x=1", 'not called: <why> & "how"')
    assert suite[1][0].get("message") == '<why> & "how"'
    assert suite[1].attrib == {"classname": "a", "name": "1", "time": "1.500"}


@pytest.mark.parametrize(("dialect", "penalty"), [(FULL, 0), (BARE, 2)])
def test_white_space_in_json_comes_to_an_end(dialect: RequestDialect, penalty: int) -> None:
    found = ServiceTarget(MODEL, "chat", "Stand-in", dialect)
    with serving() as (url, state), Api(url, KEY, found, 5) as api:
        runner.run(api, [CASES["structured.json-schema"]], Watched(), str)
    assert state.bodies[0]["frequency_penalty"] == penalty


def test_the_stand_in_sees_the_users_parameters() -> None:
    with serving() as (url, state), Api(url, KEY, TARGET, 5) as api:
        runner.run(api, [CASES["sampling.seed"], CASES["structured.regex"]], Watched(), str)
    assert state.bodies[0]["seed"] == 42
    assert state.bodies[-1]["regex"] == "(yes|no)-[0-9]{3}"
