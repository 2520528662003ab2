"""Figures to advice: SGLang's tuning guide, on the metrics and log lines that 0.5.23 writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line
from diagnosing import ARGV, START, container, node
from headfirst.common.errors import NotReadyError
from headfirst.common.metrics import Metrics, Series
from headfirst.control.cli import diagnose as shown
from headfirst.decide import engines
from headfirst.decide.diagnose import tuning
from headfirst.decide.diagnose.types import HttpAnswer, Live, NodeFacts, Tuning
from headfirst.decide.engines.base import Diagnostics
from headfirst.decide.engines.sglang.tuning import Past, advise, read_past
from rich.console import Console

# What an engine on CPUs gave, abridged: 150 requests at once, nine of them let in.
METRICS = (Path(__file__).parent / "data" / "sglang-0.5.23-metrics.txt").read_text()
REPORT = (
    "[2026-11-21 08:01:37 TP0] Decode batch, #running-req: {running}, #token: 817, token usage: {usage},"
    " cpu graph: False, gen throughput (token/s): 27.86, #queue-req: {queued}"
)
SIZES = (
    "[2026-11-21 07:59:42 TP0] max_total_num_tokens=4096, chunked_prefill_size={chunk},"
    " max_prefill_tokens=16384, max_running_requests={most}, context_len=4096, available_cpu_mem=18.75 GB"
)
RETRACTION = (
    "[2026-11-21 08:02:01 TP{rank}] KV cache pool is full. Retract requests. #retracted_reqs: 1,"
    " #new_tokens_gained: 412, #new_token_ratio: 0.4000 -> 0.4900"
)
PREFILL_OOM = "[2026-11-21 08:02:01 TP0] Prefill out of memory. Try to lower your batch size."
DECODE_OOM = "[2026-11-21 08:02:01 TP0] Decode out of memory. Try to lower your batch size."
DEVICE_OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


SGLANG = engines.get("sglang")


def tune(nodes: list[NodeFacts]) -> Tuning:
    return tuning.tune(nodes, SGLANG)


def read_live(text: str) -> Live | None:
    return tuning.read_live(text, SGLANG.metrics)


def report(usage: str = "0.20", queued: int = 141, running: int = 9) -> str:
    return REPORT.format(usage=usage, queued=queued, running=running)


def crash(*frames: str) -> list[str]:
    """A scheduler that ran out of the device's memory in these functions."""
    code = [f'  File "/sgl/srt/model_executor/model_runner.py", line 9, in {frame}' for frame in frames]
    return ["[2026-11-21 08:02:01 TP0] Scheduler hit an exception: Traceback (most recent call last):", *code]


def lines(*texts: str) -> tuple[Line, ...]:
    return tuple(Line(START + number, text) for number, text in enumerate(texts))


def past(*texts: str) -> Past:
    return read_past([lines(*texts)])


def live(**changes: float) -> Live:
    values: dict[str, float] = {"running": 9, "queued": 141, "token_usage": 0.2, "gen_throughput": 27.9}
    return Live(**{**values, **changes})


def advised(now: Live | None, then: Past, given: dict[str, str] | None = None) -> dict[str, str]:
    return {one.setting: one.change for one in advise(now, then, given or {})}


def head(*texts: str, metrics: HttpAnswer | None, flags: tuple[str, ...] = (), **changes: Any) -> NodeFacts:
    log = {float(number): text for number, text in enumerate(texts)}
    return node(0, container(0, log, argv=(*ARGV, *flags), **changes), metrics=metrics)


@pytest.mark.parametrize(
    ("more", "queued", "usage"),
    [
        ("", 141, 0.2),
        # Of several schedulers the busiest, and of priorities their sum.
        (
            'sglang:num_queue_reqs{model_name="m",priority="1",tp_rank="0"} 3.0\n'
            'sglang:token_usage{dp_rank="1",model_name="m",tp_rank="0"} 0.95\n'
            'sglang:gen_throughput{dp_rank="1",model_name="m",tp_rank="0"} NaN\n',
            141,
            0.95,
        ),
    ],
)
def test_the_figures_of_a_real_engine(more: str, queued: int, usage: float) -> None:
    found = read_live(METRICS + more)
    assert found is not None
    assert (found.running, found.queued, found.token_usage) == (9, queued, usage)
    assert found.gen_throughput == pytest.approx(27.86, abs=0.01)
    assert read_live('python_info{version="3.11"} 1.0\nsglang:context_len{} 4096.0\n') is None


def test_what_the_log_tells() -> None:
    found = past(SIZES.format(chunk=8192, most=2048), *[report("0.95", 0, running=40)] * 25, report())
    assert (found.chunked_prefill, found.max_running) == (8192, 2048)
    assert (found.reports, found.recent, found.waits, found.most_running) == (26, 20, 1, 40)


@pytest.mark.parametrize(
    "line",
    [
        # The guide's (0.4.4); as 0.5.23's sources format it with data-parallel attention and a draft model,
        # and with two kinds of attention.
        "Decode batch. #running-req: 233, #token: 370959, token usage: 0.82,"
        " gen throughput (token/s): 4594.01, #queue-req: 317",
        "[2026-02-01 10:00:00 DP3 TP3] Decode batch, #running-req: 233, #token: 370959, token usage: 0.82,"
        " accept len: 2.70, accept rate: 0.68, cuda graph: True, gen throughput (token/s): 4594.01,"
        " #queue-req: 317",
        "[2026-11-21 10:00:00 TP0] Decode batch, #running-req: 233, full token usage: 0.82,"
        " swa token usage: 0.41, cuda graph: True, gen throughput (token/s): 4594.01, #queue-req: 317",
    ],
)
def test_reports_of_other_versions(line: str) -> None:
    found = past(line)
    assert (found.most_running, found.waits, found.reports) == (233, 1, 1)


def test_ranks_that_write_the_same_line_are_counted_once() -> None:
    everybody = [RETRACTION.format(rank=rank) for rank in range(8)]
    other = lines(*[RETRACTION.format(rank=8 + rank) for rank in range(8)])
    assert read_past([lines(*everybody), other]).retractions == 1


def test_a_queue_beside_free_cache_is_let_in() -> None:
    (found,) = advise(live(), past(*[report()] * 3), {})
    assert (found.setting, found.change) == ("--schedule-conservativeness", "lower it to 0.3 (now 1.0)")
    assert found.why == "141 requests wait although token usage is 0.20, below 0.9"
    # A limit of requests is no matter of it.
    then = past(SIZES.format(chunk=8192, most=9), *[report()] * 3)
    assert advised(live(), then) == {"--max-running-requests": "raise it above 9, as many as run"}


@pytest.mark.parametrize(
    ("now", "then", "given"),
    [
        ({"queued": 0}, [report()] * 3, {}),
        ({"token_usage": 0.93}, [report("0.93")] * 3, {}),
        ({}, [report("0.95")] * 3, {}),  # the look fell between two steps
        ({}, [], {}),
        ({}, [report()] * 3, {"--schedule-conservativeness": "0.3"}),
    ],
    ids=["no queue", "full", "full in most reports", "no report yet", "as eager as it gets"],
)
def test_scheduling_that_needs_no_change(
    now: dict[str, float], then: list[str], given: dict[str, str]
) -> None:
    assert advised(live(**now), past(*then), given) == {}


@pytest.mark.parametrize(
    ("retractions", "reports", "given", "expected"),
    [
        (1, 3, "1.0", None),  # once in a while is fine
        (4, 100, "1.0", None),
        (6, 100, "1.0", "raise it to 1.3 (now 1.0)"),
        (6, 100, "1.3", "raise it to 1.6 (now 1.3)"),
    ],
)
def test_frequent_retractions(retractions: int, reports: int, given: str, expected: str | None) -> None:
    then = past(*[RETRACTION.format(rank=0)] * retractions, *[report("0.99")] * reports)
    found = advised(live(token_usage=0.99), then, {"--schedule-conservativeness": given})
    assert found.get("--schedule-conservativeness") == expected


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ([PREFILL_OOM], {"--chunked-prefill-size": "set it to 4096 or 2048"}),
        (
            [SIZES.format(chunk=8192, most=9), PREFILL_OOM],
            {"--chunked-prefill-size": "set it to 4096 or 2048 (now 8192)"},
        ),
        (
            [SIZES.format(chunk=4096, most=9), PREFILL_OOM],
            {"--chunked-prefill-size": "set it to 2048 (now 4096)"},
        ),
        ([SIZES.format(chunk=-1, most=9), PREFILL_OOM], {"--chunked-prefill-size": "set it to 4096 or 2048"}),
        ([SIZES.format(chunk=2048, most=9), PREFILL_OOM], {}),
        ([DECODE_OOM], {"--max-running-requests": "lower it"}),
        (
            [report(running=233), report(running=7), DECODE_OOM],
            {"--max-running-requests": "lower it below 233, the most that ran at a time"},
        ),
    ],
)
def test_a_kv_cache_that_was_used_up(log: list[str], expected: dict[str, str]) -> None:
    assert advised(None, past(*log)) == expected


FRACTION = "lower it by 0.05, which helps prefill and decoding"


@pytest.mark.parametrize(
    ("frames", "also"),
    [
        (["run_batch", "forward", "_forward_raw", "forward_extend", "forward"], "--chunked-prefill-size"),
        (["run_batch", "forward", "_forward_raw", "forward_decode", "forward"], "--max-running-requests"),
        (["init_decode_cuda_graph", "capture", "forward_decode"], None),
        (["load_model"], None),
    ],
)
def test_device_memory_that_was_used_up(frames: list[str], also: str | None) -> None:
    found = advised(None, past(*crash("forward_decode"), *crash(*frames), DEVICE_OOM))
    assert found.pop("--mem-fraction-static") == FRACTION
    assert list(found) == ([also] if also else [])


def test_the_fraction_that_was_given() -> None:
    found = advised(None, past(*crash(), DEVICE_OOM), {"--mem-fraction-static": "0.88"})
    assert "(now 0.88)" in found["--mem-fraction-static"]


@pytest.mark.parametrize(("policy", "count"), [("lpm", 1), ("fcfs", 0)])
def test_a_queue_that_is_too_long_for_its_policy(policy: str, count: int) -> None:
    now, then = live(queued=800, token_usage=0.95), past(*[report("0.95", 800)] * 3)
    found = advised(now, then, {"--schedule-policy": policy})
    assert list(found) == ["--schedule-policy"] * count


def test_from_a_running_head() -> None:
    there = head(
        *[report()] * 3,
        metrics=HttpAnswer(200, METRICS),
        flags=("--schedule-conservativeness=0.7", "--enable-metrics"),
    )
    found = tune([there, node(1, container(1))])
    assert found.arguments["--schedule-conservativeness"] == "0.7"
    assert "--enable-metrics" not in found.arguments
    assert [one.change for one in found.advice] == ["lower it to 0.3 (now 0.7)"]


def test_memory_that_was_used_up_now_or_in_the_run_before() -> None:
    gone = head(DECODE_OOM, metrics=HttpAnswer(0, "Connection refused"))
    found = tune([gone, node(1, None)])
    assert found.live is None
    assert [one.setting for one in found.advice] == ["--max-running-requests"]
    again = head(metrics=HttpAnswer(200, METRICS), earlier=lines(PREFILL_OOM))
    assert [one.setting for one in tune([again]).advice] == ["--chunked-prefill-size"]


@pytest.mark.parametrize(
    ("metrics", "what"),
    [
        (HttpAnswer(404, ""), "--enable-metrics"),
        (HttpAnswer(200, "# nothing\n"), "--enable-metrics"),
        (HttpAnswer(0, "Connection refused"), "Connection refused"),
        (HttpAnswer(503, "<html>"), "HTTP 503"),
        (None, "was not probed"),
    ],
)
def test_no_figures_at_all(metrics: HttpAnswer | None, what: str) -> None:
    with pytest.raises(NotReadyError) as raised:
        tune([head(report(), metrics=metrics)])
    assert what in raised.value.what
    assert raised.value.where == "node1"


def printed(found: Tuning) -> str:
    console = Console(width=200, highlight=False)
    with console.capture() as capture:
        shown.print_tuning(found, console)
    return capture.get()


@pytest.mark.parametrize(
    ("queued", "usage", "says"),
    [(0, 0.2, "more load"), (100, 0.95, "as they should"), (600, 0.95, "another replica")],
)
def test_what_a_person_reads_where_nothing_is_to_change(queued: int, usage: float, says: str) -> None:
    text = METRICS.replace("} 141.0", f"}} {queued}.0").replace("} 0.2\n", f"}} {usage}\n")
    said = printed(tune([head(report(f"{usage}", queued), metrics=HttpAnswer(200, text))]))
    assert f"running 9, queued {queued}, token usage {usage:.2f}" in said
    assert "Nothing to change" in said
    assert says in said


def test_what_a_person_reads_of_an_advice() -> None:
    said = printed(tune([head(*[report()] * 3, metrics=HttpAnswer(200, METRICS))]))
    assert "--schedule-conservativeness: lower it to 0.3" in said
    assert "because 141 requests wait" in said


class Untuned:
    """An engine with figures of its own names and without tuning rules."""

    title = "Other"
    diagnostics = Diagnostics()
    metrics = Metrics(
        running=Series("x:running"),
        queued=Series("x:waiting"),
        cache_usage=Series("x:usage"),
        generated_tokens=Series("x:generated"),
        prompt_tokens=Series("x:read"),
        progress=(),
        first_token=Series("x:first"),
        output_token=Series("x:next"),
        request=Series("x:request"),
    )


@pytest.mark.parametrize(("waiting", "says"), [("0", "more load would be served"), ("3", "requests wait")])
def test_an_engine_without_rules_shows_its_figures(waiting: str, says: str) -> None:
    text = f'x:running{{model="m"}} 2\nx:waiting {waiting}\nx:usage 0.5\n'
    found = tuning.tune([head(metrics=HttpAnswer(200, text))], Untuned())  # type: ignore[arg-type]
    assert found.advice is None
    said = printed(found)
    assert f"running 2, queued {waiting}, token usage 0.50\n" in said
    assert "There are no tuning rules for Other" in said
    assert says in said


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (HttpAnswer(404, ""), "no metrics at /metrics"),
        (HttpAnswer(0, "Connection refused"), "Connection refused"),
    ],
)
def test_an_engine_without_figures(answer: HttpAnswer, what: str) -> None:
    with pytest.raises(NotReadyError) as raised:
        tuning.tune([head(metrics=answer)], Untuned())  # type: ignore[arg-type]
    assert what in raised.value.what
