"""An engine's figures of now, from the text of its metrics."""

from __future__ import annotations

from headfirst.common.metrics import Metrics, samples
from headfirst.decide.diagnose.types import Live


def read_live(text: str, names: Metrics) -> Live | None:
    """Figures in Prometheus' text format, of several schedulers the busiest; None where there are none."""
    values: dict[str, float] = {}
    for one in samples(text):
        values[one.name] = max(values.get(one.name, 0.0), one.value)
    if names.running.name not in values:
        return None
    return Live(
        running=values[names.running.name],
        queued=values.get(names.queued.name, 0.0),
        token_usage=values.get(names.cache_usage.name, 0.0),
        gen_throughput=values.get(names.throughput, 0.0) if names.throughput else None,
    )
