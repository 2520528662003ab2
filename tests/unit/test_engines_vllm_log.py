"""What vLLM's log reports: stages of a start, and failures."""

from __future__ import annotations

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils import failure_causes
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import profile
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line
from headfirst.decide import engines

ENGINE = engines.get("vllm")
LOG = profile(ENGINE.log())
# A start over two nodes, as 0.32.0 writes it, with what the rank does then.
WORKER = "(Worker pid=90) INFO 11-20 10:00:24 "
START = [
    ("INFO [startup.py:96] non-default args: {'seed': 1}", "starting"),
    (
        f"{WORKER}[parallel_state.py:1931] world_size=2 rank=0 local_rank=0 "
        "distributed_init_method=tcp://10.0.0.1:5000 backend=gloo",
        "joining the other ranks",
    ),
    (
        f"{WORKER}[parallel_state.py:2386] rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, "
        "PCP rank 0, TP rank 0, ETP rank 0, EP rank N/A, EPLB rank N/A",
        "all ranks joined",
    ),
    (f"{WORKER}[gpu_model_runner.py:4979] Starting to load model /models/demo...", "loading weights"),
    ("Loading safetensors checkpoint shards:  38% Completed | 3/8 [00:01<00:02]", "loading weights 3/8"),
    (f"{WORKER}[default_loader.py:507] Loading weights took 5.51 seconds", "weights loaded"),
    (f"{WORKER}[backends.py:1128] Dynamo bytecode transform time: 3.54 s", "compiling"),
    (f"{WORKER}[gpu_worker.py:773] Available KV cache memory: 20.93 GiB", "measuring memory"),
    ("(Worker pid=90) Capturing CUDA graphs (decode, FULL):  50%|#  | 26/51", "capturing graphs"),
    (
        "(EngineCore pid=80) INFO 11-20 10:01:00 [core.py:405] init engine (profile, create kv cache, warmup "
        "model) took 30.12 s (compilation: 12.00 s)",
        "starting the server",
    ),
    ("(APIServer pid=1) INFO:     Application startup complete.", "ready"),
]


@pytest.mark.parametrize("known", range(len(START)))
def test_what_a_rank_does_by_its_last_line(known: int) -> None:
    lines = [line for line, _ in START[: known + 1]]
    assert LOG.doing(lines) == START[known][1]


def test_a_start_that_works_matches_no_rule() -> None:
    assert [rule.id for line, _ in START if (rule := LOG.match(line))] == []
    assert not any(LOG.dying.search(line) for line, _ in START)
    assert [line for line, _ in START if LOG.ready.search(line)] == [START[-1][0]]


def test_the_cause_is_named_before_its_consequences() -> None:
    log = [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "Exception: WorkerProc initialization failed due to an exception in a background process.",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ]
    lines = [Line(float(second), text) for second, text in enumerate(log)]
    cause = failure_causes.decisive(failure_causes.in_log(LOG, lines))
    assert cause is not None and "--gpu-memory-utilization" in cause.fix
    assert LOG.dying.search(log[1]) and LOG.dying.search(log[2])


def test_the_metrics_have_vllms_names() -> None:
    metrics = ENGINE.metrics
    assert {metrics.running.name, metrics.queued.name, metrics.cache_usage.name} == {
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
    }
