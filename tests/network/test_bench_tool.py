"""The load tool itself, in its own environment, against the stand-in for an engine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from headfirst.common.errors import HeadfirstError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.bench import runner
from headfirst.control.bench.load import SHAPES, Load, Shape
from headfirst.control.bench.result import Point
from headfirst.control.bench.runner import BenchRun, BenchSettings
from headfirst.control.evalscope import environment, process
from headfirst.control.smoke.api import Api, ServiceTarget
from headfirst.decide.engines.base import RequestDialect
from openai_server import KEY, MODEL, State, serving

MARK = "Run test."
FOUR = Load(kind="concurrency", value=4)
SHORT = Shape(name="short", title="for tests", prompt=60, answer=32)


@pytest.fixture(scope="session")
def python() -> Path:
    return environment.python(print)


class Kept:
    """A watcher that keeps what it sees."""

    def __init__(self) -> None:
        self.progressed: list[int] = []
        self.points: list[Point] = []

    def started(self, load: Load, requests: int) -> None:
        self.requests = requests

    def progress(self, done: int, seconds: float) -> None:
        assert seconds >= 0
        self.progressed.append(done)

    def ended(self, measured: Point) -> None:
        self.points.append(measured)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "tool.log"


def measure(python: Path, url: str, log: Path, *loads: Load, **settings: Any) -> Kept:
    """The points of one run."""
    target = ServiceTarget(MODEL, "chat", "stand-in", RequestDialect(None, None))
    watcher = Kept()
    with Api(url, KEY, target, 30) as api, process.running(python, "load", url, KEY, log) as running:
        seen = runner.examine(api, MARK)
        chosen = BenchSettings(mark=MARK, **{"shape": SHORT, "seed": 0, **settings})
        run = BenchRun(running, MODEL, chosen, seen.scale, watcher)
        for load in loads:
            run.measure(load)
    return watcher


def sent(state: State) -> list[dict[str, Any]]:
    return [body for body in state.bodies if body.get("stream")]


@pytest.fixture
def server() -> Iterator[tuple[str, State]]:
    with serving() as found:
        yield found


def test_a_shape_is_measured_through_the_real_tool(
    python: Path, server: tuple[str, State], log: Path
) -> None:
    url, state = server
    # The stand-in has a context of 600 tokens and answers in rounds of 16 words.
    shape = SHAPES["chat"].within(600)
    assert shape.prompt + shape.answer <= 540
    watcher = measure(python, url, log, FOUR, number=10, shape=shape)
    point = watcher.points[0]
    assert (point.requests, point.warmup, point.errors, watcher.requests) == (10, 4, {}, 14)
    bodies = sent(state)
    assert len(bodies) == 14
    assert point.answer_tokens == shape.answer // 16 * 16
    assert point.prompt_tokens == pytest.approx(shape.prompt, abs=2)
    assert point.ttft and point.tpot and point.e2e
    assert 0 < point.ttft.p50 <= point.ttft.p95 <= point.ttft.p99 < point.e2e.p99
    assert point.tpot.p50 * point.answer_tokens <= point.e2e.p99
    assert point.output_rate == pytest.approx(10 * point.answer_tokens / point.seconds)
    assert watcher.progressed
    assert max(watcher.progressed) <= 14


def test_the_key_is_in_no_argument_and_not_in_the_tools_output(
    python: Path, server: tuple[str, State], log: Path
) -> None:
    with process.running(python, "load", server[0], KEY, log) as running:
        proc = Path(f"/proc/{running.pid}")
        assert b"driver.py" in (proc / "cmdline").read_bytes()
        assert KEY.encode() not in (proc / "cmdline").read_bytes() + (proc / "environ").read_bytes()
    measure(python, server[0], log, FOUR, number=4)
    assert "Starting benchmark" in log.read_text()
    assert KEY not in log.read_text()


def test_the_same_seed_sends_the_same_requests_and_no_two_loads_share_one(
    python: Path, server: tuple[str, State], log: Path
) -> None:
    url, state = server
    runs = []
    for seed in (7, 7, 8):
        state.bodies.clear()
        measure(python, url, log, FOUR, Load(kind="concurrency", value=2), number=4, seed=seed)
        runs.append(sorted(str(body) for body in sent(state)))
    assert runs[0] == runs[1] != runs[2]
    assert len(set(runs[0])) == len(runs[0]) == 4 + 4 + 4 + 2


def test_failed_requests_are_counted_by_their_reason(python: Path, log: Path) -> None:
    with serving(faults=frozenset({"crowd-refused"})) as (url, _):
        watcher = measure(python, url, log, Load(kind="concurrency", value=8), number=16, warmup=0)
    point = watcher.points[0]
    assert point.requests == 16
    assert list(point.errors) == ["HTTP 503: queue full"]
    assert 1 <= point.failed < 16
    with serving(faults=frozenset({"breaks-off"})) as (url, _):
        watcher = measure(python, url, log, FOUR, number=4)
    assert watcher.points[0].errors == {"out of memory": 4}
    assert watcher.points[0].ttft is None


def test_an_answer_without_a_count_of_its_tokens_is_failed(python: Path, log: Path) -> None:
    with serving(faults=frozenset({"no-usage"})) as (url, _):
        point = measure(python, url, log, FOUR, number=4).points[0]
    assert point.errors == {"the answer has no count of its tokens (usage)": 4}


def test_a_rate_sends_without_waiting_for_answers(python: Path, server: tuple[str, State], log: Path) -> None:
    point = measure(python, server[0], log, Load(kind="rate", value=50), number=30, warmup=2).points[0]
    assert point.requests == 30
    assert 5 < point.request_rate < 100


def test_a_time_limit_ends_a_load(python: Path, server: tuple[str, State], log: Path) -> None:
    point = measure(python, server[0], log, Load(kind="rate", value=20), seconds=1, warmup=0).points[0]
    assert point.seconds < 10
    assert 0 < point.requests <= 20


def test_a_dataset_is_sent_as_it_is(python: Path, server: tuple[str, State], log: Path) -> None:
    lines = [{"messages": [{"role": "user", "content": text}]} for text in ("One?", "Two?")]
    measure(python, server[0], log, FOUR, number=4, warmup=0, dataset=lines)
    asked = [body["messages"][0]["content"] for body in sent(server[1])]
    assert sorted(asked) == ["One?", "One?", "Two?", "Two?"]


def test_a_tool_that_ends_is_an_error_with_its_log(server: tuple[str, State], log: Path) -> None:
    failed = pytest.raises(HeadfirstError, match="the load tool failed: it ended")
    with failed as caught, process.running(Path("/bin/false"), "load", server[0], KEY, log):
        pass
    assert str(log) in (caught.value.hint or "")


@pytest.mark.parametrize(
    "printed",
    [
        '{"result": {"start": -1, "end": 2}}',
        '{"result": {"start": 1, "end": 2, "first": "x"}}',
        '{"result": {"start": 1, "end": NaN}}',
        '{"done": "many"}',
        "[]",
        "no json",
    ],
)
def test_what_the_tool_prints_is_validated(
    printed: str, server: tuple[str, State], log: Path, tmp_path: Path
) -> None:
    script = tmp_path / "python"
    script.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        """os.write(int(sys.argv[3]), b'{"ready": true}\\n')\ninput()\n"""
        f"os.write(int(sys.argv[3]), {printed.encode()!r} + b'\\n')\n"
    )
    script.chmod(0o755)
    with process.running(script, "load", server[0], KEY, log) as running, pytest.raises(UntrustedError):
        run = BenchRun(running, MODEL, BenchSettings(SHORT, 0, MARK), runner.Scale(1, 0), Kept())
        run.measure(FOUR)


def test_a_service_that_counts_no_prompt_is_refused(python: Path, log: Path) -> None:
    refused = pytest.raises(HeadfirstError, match="counts no more tokens")
    with serving(faults=frozenset({"counts-no-prompt"})) as (url, _), refused:
        measure(python, url, log, FOUR)


def test_a_refused_key_is_told(python: Path, server: tuple[str, State]) -> None:
    target = ServiceTarget(MODEL, "chat", "stand-in", RequestDialect(None, None))
    with Api(server[0], "sk-wrong", target, 30) as api, pytest.raises(HeadfirstError, match="401"):
        runner.examine(api, MARK)
    assert httpx.get(f"{server[0]}/health").status_code == 200
