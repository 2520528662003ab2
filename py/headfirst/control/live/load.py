"""What a replica does now: its engine's own figures, read twice."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx

from headfirst.common.metrics import Figures, Metrics, read
from headfirst.control.live.ssh_access.tunnel import ask
from headfirst.decide.frozen import Tolerant

# Histograms of many labels make a long text.
ANSWER_BYTES = 16 << 20


class EngineLoad(Tolerant):
    """A replica over the time between two readings. Rates are a second; `cache_usage` is 0..1. None: unknown.

    `first_token_s` is the mean of the requests whose first token came in that time; None without one.
    """

    running: int
    queued: int | None
    cache_usage: float | None
    generated_tokens_per_s: float
    prompt_tokens_per_s: float
    requests_per_s: float
    first_token_s: float | None


class Meter:
    """Reads one engine again and again. `client` has the engine's address, and the key where it needs one."""

    def __init__(
        self, client: httpx.Client, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._clock = clock
        self._last: tuple[float, Figures] | None = None

    @property
    def age_s(self) -> float | None:
        """Seconds since the last reading; None without one."""
        return None if self._last is None else self._clock() - self._last[0]

    def read(self) -> EngineLoad | None:
        """The load since the last reading; None at the first one, and where the engine gives no figures.

        Raises UntrustedError and httpx.HTTPError.
        """
        status, body = ask(self._client, "GET", self._metrics.path, limit=ANSWER_BYTES)
        figures = read(body.decode(errors="replace"), self._metrics) if status == 200 else None
        before, self._last = self._last, (self._clock(), figures) if figures else None
        if before is None or self._last is None or figures is None:
            return None
        return _between(before[1], figures, max(self._last[0] - before[0], 1e-3))


def _between(before: Figures, now: Figures, seconds: float) -> EngineLoad:
    def rate(earlier: float, later: float) -> float:
        return max(later - earlier, 0.0) / seconds  # an engine that has started again counts from 0

    answered = now.first_tokens - before.first_tokens
    return EngineLoad(
        running=now.running,
        queued=now.queued,
        cache_usage=now.cache_usage,
        generated_tokens_per_s=rate(before.generated_tokens, now.generated_tokens),
        prompt_tokens_per_s=rate(before.prompt_tokens, now.prompt_tokens),
        requests_per_s=rate(before.requests, now.requests),
        first_token_s=(now.first_token_seconds - before.first_token_seconds) / answered
        if answered > 0
        else None,
    )
