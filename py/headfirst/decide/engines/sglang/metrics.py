"""SGLang's figures (srt/observability/metrics_collector.py of 0.5.22 and 0.5.23).

`sglang:realtime_tokens_total` rises with every step of the scheduler; `generation_tokens_total` only when a
request ends. The first token of a request belongs to its prefill. Only the schedulers of rank 0's node
publish: those of other nodes answer on their own loopback address.
"""

from __future__ import annotations

from headfirst.common.metrics import Series
from headfirst.decide.engines.base import Metrics

_TOKENS = "sglang:realtime_tokens_total"

METRICS = Metrics(
    running=Series("sglang:num_running_reqs"),
    queued=Series("sglang:num_queue_reqs"),
    cache_usage=Series("sglang:token_usage"),
    generated_tokens=Series(_TOKENS, {"mode": "decode"}),
    prompt_tokens=Series(_TOKENS, {"mode": "prefill_.*"}),
    progress=(Series(_TOKENS),),
    first_token=Series("sglang:time_to_first_token_seconds"),
    output_token=Series("sglang:inter_token_latency_seconds"),
    request=Series("sglang:e2e_request_latency_seconds"),
    # Each pipeline stage counts every request; by priority there is a total, and its parts.
    copies=("pp_rank", "priority"),
    flag="--enable-metrics",
    throughput="sglang:gen_throughput",
    delay_s=30.0,  # with decode_log_interval steps between two reports, or 30 s where nothing runs
)
