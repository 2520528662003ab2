"""Recording rules: every engine's own figures under one set of names, for alerts and dashboards alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headfirst.common.metrics import Series
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.engines.base import Metrics
from headfirst.decide.plan.monitoring import metrics_of
from headfirst.decide.plan.types import PlannedService

# Of one replica.
_BY = "cluster, service, replica, engine"
_RATE = "1m"
_QUANTILES = {"p50": "0.5", "p95": "0.95", "p99": "0.99"}


def rules(cluster: Cluster, services: Sequence[PlannedService]) -> dict[str, Any]:
    """A rule file: one group for each engine of these services, and one that lists the ranks."""
    used = {service.engine: metrics_of(service) for service in services}
    groups = [_group(name, metrics) for name, metrics in used.items()]
    return {"groups": [*groups, {"name": "ranks", "rules": [*_ranks(cluster, services)]}]}


def _group(name: str, metrics: Metrics) -> dict[str, Any]:
    def total(series: Series, kind: str = "{}") -> str:
        inner = kind.format(_of(name, series))
        if not metrics.copies:
            return f"sum by ({_BY}) ({inner})"
        return f"sum by ({_BY}) (max without ({', '.join(metrics.copies)}) ({inner}))"

    rate = f"rate({{}}[{_RATE}])"
    expressions = {
        "running": total(metrics.running),
        "queued": total(metrics.queued),
        "kv_cache_usage": f"max by ({_BY}) ({_of(name, metrics.cache_usage)})",
        "generated_tokens:rate1m": total(metrics.generated_tokens, rate),
        "prompt_tokens:rate1m": total(metrics.prompt_tokens, rate),
        "requests:rate1m": total(Series(f"{metrics.request.name}_count"), rate),
    }
    histograms = {
        "first_token_seconds": metrics.first_token,
        "output_token_seconds": metrics.output_token,
        "request_seconds": metrics.request,
    }
    for what, histogram in histograms.items():
        buckets = f"sum by ({_BY}, le) (rate({_of(name, Series(f'{histogram.name}_bucket'))}[5m]))"
        for quantile, part in _QUANTILES.items():
            expressions[f"{what}:{quantile}"] = f"histogram_quantile({part}, {buckets})"
    rules = [{"record": f"headfirst:{what}", "expr": expression} for what, expression in expressions.items()]
    return {"name": f"engine-{name}", "rules": rules}


def _of(engine: str, series: Series) -> str:
    """The series, of this engine's targets."""
    return Series(series.name, {"engine": engine, **series.labels}).selector


def _ranks(cluster: Cluster, services: Iterable[PlannedService]) -> Iterable[dict[str, Any]]:
    """Which rank runs on which host: figures of hosts and GPUs name their host alone."""
    for service in services:
        for replica, node in service.ranks:
            labels = {
                "cluster": cluster.name,
                "service": service.served_model_name,
                "replica": str(replica.index),
                "rank": str(node.rank),
                "host": node.host,
            }
            yield {"record": "headfirst:rank", "expr": "vector(1)", "labels": labels}
