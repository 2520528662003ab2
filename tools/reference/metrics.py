"""The page of the figures that Headfirst reads of engines, from the engine contract."""

from __future__ import annotations

import inspect
from dataclasses import fields

from headfirst.common.metrics import Metrics, Series
from headfirst.decide import engines
from headfirst.decide.engines.base import Engine

from reference import comments
from reference.text import cell, generated

INTRODUCTION = """\
What rank 0 of a replica publishes in Prometheus' format, as `deploy status`, `deploy top`,
`deploy diagnose --tuning`, the supervisor and the rules of `[monitoring]` read it.
[Monitoring](../monitoring.md) has the names under which Prometheus records them for all engines, and alerts.
"""


def page() -> str:
    """A table of figures for each engine, of the snapshot's version."""
    lines = [
        generated("Metrics", "py/headfirst/common/metrics.py and the engines' metrics()"),
        INTRODUCTION,
        cell((inspect.getdoc(Metrics) or "").partition("\n\n")[2]),
        "",
        "| figure | meaning |",
        "|---|---|",
        *(f"| `{name}` | {cell(text)} |" for name, text in comments.of_fields(Metrics).items()),
        "",
    ]
    for name in engines.names():
        engine = engines.get(name)
        lines += [f"## {engine.title} {engine.version}", "", "| figure | published as |", "|---|---|"]
        lines += [f"| `{figure}` | {text} |" for figure, text in _published(engine).items() if text]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _published(engine: Engine) -> dict[str, str]:
    """Figure → how it is published; "" for what this version does not have."""
    metrics = engine.metrics
    values = {field.name: getattr(metrics, field.name) for field in fields(Metrics)}
    return {name: _value(value) if value else "" for name, value in values.items()}


def _value(value: object) -> str:
    if isinstance(value, Series):
        return f"`{cell(value.selector)}`"
    if isinstance(value, tuple):
        return ", ".join(_value(part) for part in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
