"""LMDeploy's figures (lmdeploy/metrics/loggers.py of 0.17.0 and 0.18.0).

Its server lets only the health paths pass without the key (serve/utils/server_utils.py).
"""

from __future__ import annotations

from headfirst.common.metrics import Series
from headfirst.decide.engines.base import Metrics

_GENERATED = Series("lmdeploy:generation_tokens_total")
_PROMPT = Series("lmdeploy:prompt_tokens_total")

METRICS = Metrics(
    running=Series("lmdeploy:num_requests_running"),
    queued=Series("lmdeploy:num_requests_waiting"),
    cache_usage=Series("lmdeploy:gpu_cache_usage_perc"),
    generated_tokens=_GENERATED,
    prompt_tokens=_PROMPT,
    progress=(_GENERATED, _PROMPT),
    first_token=Series("lmdeploy:time_to_first_token_seconds"),
    output_token=Series("lmdeploy:time_per_output_token_seconds"),
    request=Series("lmdeploy:e2e_request_latency_seconds"),
    needs_key=True,
    delay_s=10.0,  # serve/openai/api_server.py, log_interval
)
