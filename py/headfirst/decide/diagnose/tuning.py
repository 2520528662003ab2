"""Live figures of the head, and what the engine's own rules advise from them."""

from __future__ import annotations

from collections.abc import Sequence

from headfirst.common.errors import NotReadyError
from headfirst.common.metrics import Metrics, samples
from headfirst.decide.diagnose.subject import values
from headfirst.decide.diagnose.types import HttpAnswer, Live, NodeFacts, Tuning
from headfirst.decide.engines.base import Engine


def tune(nodes: Sequence[NodeFacts], engine: Engine) -> Tuning:
    """Advice for a service. NotReadyError where neither the engine nor its log has figures."""
    about, metrics = engine.diagnostics, engine.metrics
    head = nodes[0]
    answer = head.metrics or HttpAnswer(0, head.problem or "the host was not probed")
    live = read_live(answer.text, metrics) if answer.status == 200 else None
    words = values(head.container.argv if head.container else ())
    flags = {flag: value for flag, value in words.items() if value and flag.startswith("--")}
    advice = about.tune(nodes, live, flags) if about.tune else _figures_alone(engine.title, live, flags)
    if advice is None:
        raise _no_figures(head, answer, metrics)
    return advice


def _figures_alone(title: str, live: Live | None, flags: dict[str, str]) -> Tuning | None:
    if live is None:
        return None
    load = "requests wait" if live.queued else "no request waits: more load would be served"
    return Tuning(engine=title, live=live, load=load, arguments=flags, advice=None)


def _no_figures(head: NodeFacts, answer: HttpAnswer, metrics: Metrics) -> NotReadyError:
    hint = "Run `deploy diagnose` without --tuning."
    if answer.status not in (200, 404):
        said = f"HTTP {answer.status}" if answer.status else answer.text
        what = f"the engine does not answer at {metrics.path}: {said}"
    elif metrics.flag:
        what = f"the engine publishes no metrics: it was started without {metrics.flag}"
        hint = f"Run `deploy up`: it restarts the ranks with {metrics.flag}."
    else:
        what = f"the engine publishes no metrics at {metrics.path}"
    return NotReadyError(what, where=head.host, hint=hint)


def read_live(text: str, names: Metrics) -> Live | None:
    """Figures in Prometheus' text format, of several schedulers the busiest; None where there are none."""
    values: dict[str, float] = {}
    for sample in samples(text):
        values[sample.name] = max(values.get(sample.name, 0.0), sample.value)
    if names.running.name not in values:
        return None
    return Live(
        running=values[names.running.name],
        queued=values.get(names.queued.name, 0.0),
        token_usage=values.get(names.cache_usage.name, 0.0),
        gen_throughput=values.get(names.throughput, 0.0) if names.throughput else None,
    )
