"""Whether rank 0 computes: its figures change, or it answers a small request.

While they change the engine is not asked for more. One that answers neither for a long time hangs.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import requests
from ansible_collections.headfirst.serving.plugins.module_utils import readiness

from headfirst.common.metrics import read
from headfirst.node.supervisor.records import GenerationRecord

_STARTING_S = 1.0
# Checks in the time after which an engine counts as hanging.
_LOOKS = 6
_METRICS_LIMIT_S = 10.0
# The engine answers behind the requests that it serves.
_ANSWER_LIMIT_S = 60.0
_LONGEST = 4 << 20


class Health:
    """Asks the engine of one start in a thread of its own, until it is closed."""

    def __init__(self, record: GenerationRecord) -> None:
        self._record = record
        self._begun = time.monotonic()
        self._alive_at: float | None = None
        self._seen: tuple[float, float | None] | None = None
        self._closed = threading.Event()
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy must not be between a node and its own engine
        threading.Thread(target=self._watch, name=f"health {record.name}", daemon=True).start()

    @property
    def serves(self) -> bool:
        """Whether it has answered since its start."""
        return self._alive_at is not None

    @property
    def silent_s(self) -> float:
        """Seconds since it computed last, or since its start."""
        return time.monotonic() - (self._begun if self._alive_at is None else self._alive_at)

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(self._record.hang_s / _LOOKS if self.serves else _STARTING_S):
            # A start is over when it answers a request; its figures may have changed before.
            if (self.serves and self._moves()) or self._answers():
                self._alive_at = time.monotonic()

    def _moves(self) -> bool:
        """Whether the figures that change while it computes have changed since they were read last."""
        if self._record.metrics is None:
            return False
        status, text = self._ask(self._record.metrics.path, None, _METRICS_LIMIT_S)
        figures = read(text, self._record.metrics) if status == 200 else None
        if figures is None:
            return False
        before, self._seen = self._seen, (figures.progress, figures.cache_usage)
        return before is not None and self._seen != before

    def _answers(self) -> bool:
        record = self._record
        if self.serves and record.path_generates:
            return self._ask_engine(record.readiness["path"], None)[0] == 200
        return readiness.serves(self._ask_engine, record.readiness, record.model)[0]

    def _ask_engine(self, path: str, body: dict[str, Any] | None) -> tuple[int, str, str]:
        status, text = self._ask(path, body, _ANSWER_LIMIT_S)
        return status, text, ""

    def _ask(self, path: str, body: dict[str, Any] | None, limit_s: float) -> tuple[int, str]:
        """Status and text of an answer; 0 where there is none, or one that does not end."""
        headers = {"Authorization": f"Bearer {self._record.api_key}", "Accept-Encoding": "identity"}
        ends = time.monotonic() + limit_s
        text = bytearray()
        try:
            with self._session.request(
                "POST" if body else "GET",
                self._record.url + path,
                json=body,
                headers=headers,
                timeout=(5, limit_s),
                stream=True,
            ) as answer:
                for chunk in answer.iter_content(65_536):
                    text += chunk
                    if len(text) > _LONGEST or time.monotonic() > ends:
                        return 0, ""
                return answer.status_code, text.decode(errors="replace")
        except (requests.RequestException, OSError):
            return 0, ""
