"""Which lines of a container's log belong to its present start."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.modules import container_watch


class Log:
    """The log of a container; keeps what it was asked for, and refuses what docker-py refuses."""

    since: int | None = None

    def logs(self, *, since: int, **_: Any) -> bytes:
        if since <= 0:
            raise ValueError("since value should be datetime or positive int/float")
        self.since = since
        return b"10 %\r20 %\r\nready\n"


@pytest.mark.parametrize(
    "started_at",
    [
        "2026-01-31T10:20:30.123456789Z",
        "2026-01-31T18:20:30.123456789+08:00",  # as Podman writes it
        "2026-01-31T05:20:30-05:00",
    ],
)
def test_the_lines_since_the_start_are_read_in_any_time_zone(started_at: str) -> None:
    log = Log()
    assert container_watch._log(log, started_at, 2, timestamps=False) == ["20 %", "ready"]
    assert log.since == 1769854830


def test_a_container_that_never_started_has_no_lines() -> None:
    assert container_watch._log(Log(), "0001-01-01T00:00:00Z", 2, timestamps=False) == []
