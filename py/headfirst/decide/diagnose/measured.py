"""What a start of rank 0 took and measured, by its log, beside what was planned. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Annotated

from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import profile
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line
from pydantic import Field

from headfirst.decide.diagnose.phases import phases
from headfirst.decide.engines.base import Engine
from headfirst.decide.frozen import Tolerant

# Of one GPU, by the name in log.yml: the name for people, and the unit.
_FIGURES = {
    "kv_tokens": ("KV cache", "tokens"),
    "weights_gib": ("weights", "GiB"),
    "graphs_gib": ("graphs", "GiB"),
}
_MOST_LINES = 50_000  # of a start
Number = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class Figure(Tolerant):
    """One quantity; `planned` is None where the plan has none."""

    name: str
    unit: str
    measured: Number
    planned: Number | None = None

    def __str__(self) -> str:
        number = "{:,.0f}" if self.unit == "tokens" else "{:.2f}"
        text = f"{self.name} {number.format(self.measured)} {self.unit}"
        if not self.planned:
            return text
        percent = 100 * (self.measured - self.planned) / self.planned
        return f"{text} ({number.format(self.planned)} planned, {percent:+.0f} %)"


class Measured(Tolerant):
    """The figures of a start, and the seconds of each of its phases, by what rank 0 did."""

    figures: list[Figure] = []
    seconds: dict[str, Number] = {}
    started_at: str = ""  # of the container, as its engine reports it

    @property
    def sentence(self) -> str:
        """The figures, then the phases; "" where the log has none."""
        phases = ", ".join(f"{doing} {took:.0f} s" for doing, took in self.seconds.items() if took >= 1)
        start = f"Start {sum(self.seconds.values()):.0f} s: {phases}" if phases else ""
        parts = ["; ".join(map(str, self.figures)), start]
        return ". ".join(part for part in parts if part)


def of_log(engine: Engine, planned: Mapping[str, float], lines: Iterable[Line], began: float) -> Measured:
    """The figures in the lines of one start, which began at a time in seconds, until it is ready.

    `figures` of log.yml has patterns whose group is a number, of _FIGURES; `planned` has some of these.
    """
    log = engine.log()
    rules, patterns = profile(log), {name: re.compile(text) for name, text in log.get("figures", {}).items()}
    found: dict[str, float] = {}
    start: list[Line] = []
    for line in itertools.islice(lines, _MOST_LINES):
        start.append(line)
        text = rules.plain(line.text)
        for name, pattern in patterns.items():
            if match := pattern.search(text):
                value = float(match[1].replace(",", ""))
                found[name] = found.get(name, 0.0) + value if name == "graphs_gib" else value
        if rules.ready.search(text):
            break
    figures = [
        Figure(name=name, unit=unit, measured=found[key], planned=planned.get(key))
        for key, (name, unit) in _FIGURES.items()
        if key in found
    ]
    ended = start[-1].at if start else began
    seconds = phases(rules, start, began, ended)
    # Of a log without stages nothing is known but its end.
    return Measured(figures=figures, seconds=seconds if len(seconds) > 1 else {})
