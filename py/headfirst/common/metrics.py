"""The figures that an engine publishes of itself, by name, and the reader of their text.

Part of the engine contract (engines/base.py); only the standard library, since the nodes read them, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\.)*)",? ?')
_SAMPLE = re.compile(
    r"^([a-zA-Z_:][\w:]*)(?:\{((?:[a-zA-Z_]\w*=\"(?:[^\"\\\n]|\\.)*\",? ?)*)\})?"
    r" ([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?: -?\d+)?$",
    re.MULTILINE,
)
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


@dataclass(frozen=True)
class Series:
    """A metric as it is published; with `labels`, those series of it whose labels match.

    The values of `labels` are regular expressions of the whole value, as after `=~` in PromQL.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def selector(self) -> str:
        """This in PromQL."""
        matchers = ",".join(f'{label}=~"{pattern}"' for label, pattern in self.labels.items())
        return f"{self.name}{{{matchers}}}" if matchers else self.name

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels is one of them."""
        return all(re.fullmatch(pattern, labels.get(label, "")) for label, pattern in self.labels.items())


@dataclass(frozen=True)
class Metrics:
    """What rank 0 publishes at `path`, in Prometheus' text format.

    A replica's figure is the sum over its series; of those that differ in the labels `copies` alone, the
    largest counts. The KV cache's use is the largest of all. A counter appears with its first event: one that
    is missing is 0. `progress` are counters of which one rises while the engine computes, also for requests
    that have not ended; while it reads one long prompt in parts, some engines change `cache_usage` alone. So
    an engine with requests of which no figure changes hangs. Gauges are up to `delay_s` seconds old.
    """

    running: Series  # gauge: requests that are served now
    queued: Series  # gauge: requests that wait
    cache_usage: Series  # gauge, 0..1: the part of the KV cache in use
    generated_tokens: Series  # counter
    prompt_tokens: Series  # counter
    progress: tuple[Series, ...]
    first_token: Series  # histogram, seconds; as its metric is named, without _bucket
    output_token: Series  # histogram, seconds for each token after the first
    request: Series  # histogram, seconds for a whole request
    model_label: str = "model_name"  # has the served name
    copies: tuple[str, ...] = ()
    path: str = "/metrics"
    needs_key: bool = False  # whether `path` answers only with the API key
    flag: str = ""  # the argument that the plan adds to have them; "" where they are on by default
    throughput: str = ""  # gauge of generated tokens a second, where the engine has one
    delay_s: float = 0.0


@dataclass(frozen=True)
class Figures:
    """A replica at one moment. Counters are since the start of the engine; a missing gauge is None."""

    running: int
    queued: int | None
    cache_usage: float | None  # 0..1
    generated_tokens: float
    prompt_tokens: float
    progress: float
    requests: float = 0.0  # that have ended
    first_tokens: float = 0.0  # requests that have their first token
    first_token_seconds: float = 0.0  # the sum of their times


@dataclass(frozen=True)
class MetricSample:
    """One line of the text."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples(text: str) -> Iterator[MetricSample]:
    """The samples in Prometheus' text format; lines that are none, and values that are no finite numbers,
    are left out."""
    for name, labels, value in _SAMPLE.findall(text):
        if math.isfinite(number := float(value)):
            yield MetricSample(name, {key: _unescaped(raw) for key, raw in _LABEL.findall(labels)}, number)


def read(text: str, metrics: Metrics) -> Figures | None:
    """The figures in an engine's answer; None where it has none of this engine."""
    scrape = [*samples(text)]
    if not any(sample.name == metrics.running.name for sample in scrape):
        return None

    def total(series: Series) -> float:
        return _total(scrape, series, metrics.copies)

    return Figures(
        running=round(total(metrics.running)),
        queued=round(total(metrics.queued)) if any(_of(scrape, metrics.queued)) else None,
        cache_usage=max((sample.value for sample in _of(scrape, metrics.cache_usage)), default=None),
        generated_tokens=total(metrics.generated_tokens),
        prompt_tokens=total(metrics.prompt_tokens),
        progress=sum(map(total, metrics.progress)),
        requests=total(_part(metrics.request, "count")),
        first_tokens=total(_part(metrics.first_token, "count")),
        first_token_seconds=total(_part(metrics.first_token, "sum")),
    )


def _part(histogram: Series, part: str) -> Series:
    return Series(f"{histogram.name}_{part}", histogram.labels)


def _of(scrape: list[MetricSample], series: Series) -> Iterator[MetricSample]:
    return (sample for sample in scrape if sample.name == series.name and series.matches(sample.labels))


def _total(scrape: list[MetricSample], series: Series, copies: tuple[str, ...]) -> float:
    largest: dict[frozenset[tuple[str, str]], float] = {}
    for sample in _of(scrape, series):
        key = frozenset((label, value) for label, value in sample.labels.items() if label not in copies)
        largest[key] = max(largest.get(key, sample.value), sample.value)
    return sum(largest.values())


def _unescaped(value: str) -> str:
    return re.sub(r"\\.", lambda match: _ESCAPES.get(match[0], match[0]), value)
