"""vLLM's figures (vllm/v1/metrics/loggers.py of 0.32.0 and 0.33.0)."""

from __future__ import annotations

from headfirst.common.metrics import Series
from headfirst.decide.engines.base import Metrics

_GENERATED = Series("vllm:generation_tokens_total")
_PROMPT = Series("vllm:prompt_tokens_total")

METRICS = Metrics(
    running=Series("vllm:num_requests_running"),
    queued=Series("vllm:num_requests_waiting"),
    cache_usage=Series("vllm:kv_cache_usage_perc"),
    generated_tokens=_GENERATED,
    prompt_tokens=_PROMPT,
    progress=(_GENERATED, _PROMPT),
    first_token=Series("vllm:time_to_first_token_seconds"),
    output_token=Series("vllm:inter_token_latency_seconds"),
    request=Series("vllm:e2e_request_latency_seconds"),
)
