"""What engines publish of themselves: the text's reader, and the names that their sources define."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from headfirst.common import metrics
from headfirst.common.metrics import Figures, Series
from headfirst.decide import engines
from sglang_launches import TWO

TEXT = (Path(__file__).parent / "data" / "sglang-0.5.23-metrics.txt").read_text()
SGLANG = engines.get("sglang").metrics
VLLM = engines.get("vllm").metrics


def test_the_figures_of_a_running_engine() -> None:
    found = metrics.read(TEXT, SGLANG)
    assert found
    assert (found.running, found.queued, found.cache_usage) == (9, 141, 0.2)


def test_series_are_summed_and_copies_are_not() -> None:
    text = """\
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 3.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
vllm:generation_tokens_total{engine="0",model_name="m"} 1e3
vllm:generation_tokens_total{engine="1",model_name="m"} 24.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 7.0
"""
    assert metrics.read(text, VLLM) == Figures(5, None, 0.5, 1024.0, 7.0, 1031.0)
    stages = """\
sglang:num_running_reqs{dp_rank="0",pp_rank="0"} 4.0
sglang:num_running_reqs{dp_rank="0",pp_rank="1"} 3.0
sglang:num_running_reqs{dp_rank="1",pp_rank="0"} 1.0
sglang:num_queue_reqs{pp_rank="0",priority=""} 5.0
sglang:num_queue_reqs{pp_rank="0",priority="1"} 5.0
sglang:realtime_tokens_total{mode="decode",pp_rank="0"} 10.0
sglang:realtime_tokens_total{mode="decode",pp_rank="1"} 10.0
sglang:realtime_tokens_total{mode="prefill_cache",pp_rank="0"} 3.0
sglang:realtime_tokens_total{mode="prefill_compute",pp_rank="0"} 4.0
"""
    assert metrics.read(stages, SGLANG) == Figures(5, 5, None, 10.0, 7.0, 17.0)


def test_text_of_another_program_has_no_figures() -> None:
    assert metrics.read("<html>", SGLANG) is None
    assert metrics.read('vllm:num_requests_running{engine="0"} 2.0\n', SGLANG) is None


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ('a{m="x}y"} 1', {"m": "x}y"}, 1.0),
        (r'a{m="q\"\\n",n="\n"} 2.5', {"m": 'q"\\n', "n": "\n"}, 2.5),
        ("a 3e-1 1700000000000", {}, 0.3),
    ],
)
def test_a_line(line: str, labels: dict[str, str], value: float) -> None:
    (found,) = metrics.samples(line)
    assert (found.name, found.labels, found.value) == ("a", labels, value)


@pytest.mark.parametrize("line", ["a NaN", "a +Inf", "a 1e999", 'a{m="x} 1', "# a 1", "a 1 x", "a{m=x} 1"])
def test_what_is_no_finite_sample_is_left_out(line: str) -> None:
    assert not [*metrics.samples(line)]


def test_a_series_in_promql() -> None:
    assert Series("a").selector == "a"
    assert Series("a", {"mode": "prefill_.*"}).selector == 'a{mode=~"prefill_.*"}'


@pytest.mark.parametrize("name", engines.names())
def test_every_name_is_one_of_the_snapshots_version(name: str) -> None:
    of, version = engines.get(name).metrics, engines.get(name).version
    lines = (Path(__file__).parent / "data" / "metrics" / f"{name}-{version}.txt").read_text().splitlines()
    kinds = dict(line.split() for line in lines[1:])
    gauges = {of.running.name, of.queued.name, of.cache_usage.name, *filter(None, [of.throughput])}
    counters = {one.name for one in (of.generated_tokens, of.prompt_tokens, *of.progress)}
    histograms = {of.first_token.name, of.output_token.name, of.request.name}
    assert {kinds.get(one) for one in gauges} == {"gauge"}
    assert {kinds.get(one) for one in counters} == {"counter"}
    assert {kinds.get(one) for one in histograms} == {"histogram"}
    assert of.path.startswith("/")


@pytest.mark.parametrize("given", [(), ("--enable-metrics",)])
@pytest.mark.parametrize("rank", [0, 1])
def test_sglang_publishes_its_figures_by_default(rank: int, given: tuple[str, ...]) -> None:
    request = replace(TWO, rank=rank, extra_args=given)
    assert engines.get("sglang").launch(request).command.count("--enable-metrics") == 1


def test_arguments_that_switch_the_figures_off() -> None:
    for name in engines.names():
        assert engines.get(name).publishes({})
    assert not engines.get("vllm").publishes({"disable_log_stats": True})
    assert not engines.get("lmdeploy").publishes({"disable_metrics": True})
    assert not engines.get("lmdeploy").publishes({"dp": 2})
