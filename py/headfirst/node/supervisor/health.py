"""Whether rank 0 computes: its figures change, or it answers a small request.

While they change the engine is not asked for more. One that answers neither for a long time hangs.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import requests
from ansible_collections.headfirst.serving.plugins.module_utils.http_probe import holds

from headfirst.common.metrics import read
from headfirst.node.supervisor.records import Record

_STARTING_S = 1.0
# Checks in the time after which an engine counts as hanging.
_LOOKS = 6
_METRICS_LIMIT_S = 10.0
# The engine answers behind the requests that it serves.
_ANSWER_LIMIT_S = 60.0
_LONGEST = 4 << 20


class Health:
    """Asks the engine of one start in a thread of its own, until it is closed."""

    def __init__(self, record: Record) -> None:
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
        how = self._record.readiness
        status, _body = self._ask(how["path"], None, _ANSWER_LIMIT_S)
        if status != 200:
            return False
        if self.serves and self._record.path_generates:
            return True
        status, text = self._ask(
            how["probe_path"], {**how["probe_body"], "model": self._record.model}, _ANSWER_LIMIT_S
        )
        return status == 200 and _holds(text, how["answer"])

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


def _holds(text: str, keys: list[Any]) -> bool:
    """Whether the answer to the probe has what it must."""
    try:
        return holds(json.loads(text), [str(key) for key in keys])
    except ValueError:
        return False
