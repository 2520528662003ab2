"""What the log of a start measured, beside the plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line
from headfirst.decide import engines
from headfirst.decide.diagnose.measured import Figure, Measured, of_log
from headfirst.decide.plan.types import Fit

GIB = 1 << 30
FIT = Fit(
    fits=True,
    reason="",
    gpu_memory_bytes=80 * GIB,
    weight_bytes_total=30 * GIB,
    weight_bytes_per_rank=15 * GIB,
    reserved_bytes=0,
    static_fraction=None,
    kv_bytes_per_token=1,
    kv_pool_bytes=None,
    kv_tokens=400_000,
    kv_tokens_of_replica=None,
    context=1,
    longest_request=None,
    terms={"decode_graphs": GIB, "prefill_graphs": GIB, "activations": GIB},
)
SGLANG = """\
0 [2026-11-21 07:59:30] server_args=ServerArgs(model_path='/m', api_key='max_total_num_tokens=7')
4 [2026-11-21 07:59:34 TP0] Init torch distributed begin.
5 [2026-11-21 07:59:35 TP0] Init torch distributed ends. elapsed=1.00 s
5 [2026-11-21 07:59:35 TP0] Load weight begin. avail mem=78.00 GB
17 [2026-11-21 07:59:47 TP0] Load weight end. elapsed=12.00 s, type=X, avail mem=63.50 GB, mem usage=14.50 GB.
18 [2026-11-21 07:59:48 TP0] Capture decode CUDA graph begin.
28 [2026-11-21 07:59:58 TP1] Capture decode CUDA graph end. elapsed=10.0 s, mem usage=1.60 GB, avail mem=5 GB.
28 [2026-11-21 07:59:58 TP0] Capture decode CUDA graph end. elapsed=10.0 s, mem usage=1.50 GB, avail mem=5 GB.
30 [2026-11-21 07:59:59 TP0] Capture prefill CUDA graph end. elapsed=2.00 s, mem usage=0.90 GB, avail mem=4 G.
30 [2026-11-21 08:00:00 TP0] max_total_num_tokens=396000, chunked_prefill_size=8192, max_running_requests=48
31 [2026-11-21 08:00:01] The server is fired up and ready to roll!
90 [2026-11-21 08:01:00 TP0] max_total_num_tokens=5, of another start
"""
VLLM = """\
0 INFO [api_utils.py:286] non-default args: {'api_key': ['x']}
9 INFO [gpu_model_runner.py:5089] Model loading took 15.3 GiB memory and 3.100000 seconds
20 INFO [kv_cache_utils.py:2327] GPU KV cache size: 412,000 tokens, Maximum concurrency for 8,192
29 INFO [gpu_model_runner.py:6517] Graph capturing finished in 9 secs, took 2.00 GiB
30 INFO:     Application startup complete.
"""


def read(engine: str, text: str, fit: Fit = FIT) -> Measured:
    lines = (line.partition(" ") for line in text.splitlines())
    return of_log(engines.get(engine), fit.figures, [Line(float(at), rest) for at, _, rest in lines], 0.0)


def test_the_figures_of_sglang() -> None:
    told = read("sglang", SGLANG)
    assert told.figures == [
        Figure(name="KV cache", unit="tokens", measured=396_000, planned=400_000),
        Figure(name="weights", unit="GiB", measured=14.5, planned=15),
        Figure(name="graphs", unit="GiB", measured=2.4, planned=2),
    ]
    assert told.seconds["loading weights"] == 12
    assert told.sentence.startswith(
        "KV cache 396,000 tokens (400,000 planned, -1 %); weights 14.50 GiB (15.00 planned, -3 %); "
        "graphs 2.40 GiB (2.00 planned, +20 %). Start 31 s: starting 4 s, "
        "joining the other ranks 1 s, loading weights 12 s, "
    )


def test_the_figures_of_vllm() -> None:
    told = read("vllm", VLLM)
    assert [(each.name, each.measured) for each in told.figures] == [
        ("KV cache", 412_000),
        ("weights", 15.3),
        ("graphs", 2.0),
    ]


def test_what_is_not_planned_has_no_percentage() -> None:
    told = read("vllm", VLLM, FIT.model_copy(update={"kv_tokens": None, "terms": {}}))
    assert str(told.figures[0]) == "KV cache 412,000 tokens"
    assert str(told.figures[2]) == "graphs 2.00 GiB"


@pytest.mark.parametrize("engine", ["sglang", "vllm", "lmdeploy"])
def test_a_log_without_figures_has_none(engine: str) -> None:
    assert read(engine, "1 Traceback (most recent call last):\n").sentence == ""


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_real_log_has_its_phases(engine: str) -> None:
    text = Path(__file__).with_name("data").joinpath("serving", f"{engine}.log").read_text("utf-8")
    numbered = "".join(f"{at} {line}\n" for at, line in enumerate(text.splitlines()))
    assert read(engine, numbered).seconds
