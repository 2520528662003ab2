"""A container as the Docker Engine and Podman describe it."""

from __future__ import annotations

import pytest
from described_container import described
from headfirst.common.container_state import container_state
from headfirst.node.supervisor.containers import LOG_LINES, Containers


@pytest.mark.parametrize(
    ("started_at", "seconds"),
    [
        ("2026-01-01T10:00:00.987654321Z", 1_767_261_600),
        ("2026-01-01T11:00:00.5+01:00", 1_767_261_600),  # Podman, on a host with another time zone
    ],
)
def test_when_a_container_was_started(started_at: str, seconds: int) -> None:
    assert container_state(described(StartedAt=started_at)).started_s == seconds


@pytest.mark.parametrize(
    ("started_at", "since"), [("2026-01-01T10:00:00Z", 1_767_261_600), ("0001-01-01T00:00:00Z", 1)]
)
def test_the_log_of_a_rank_has_no_lines_of_the_start_before(started_at: str, since: int) -> None:
    """They would be its earliest failure, and so the cause that `deploy events` names."""

    class Engine:
        attrs = described(StartedAt=started_at)

        @property
        def containers(self) -> Engine:
            return self

        def get(self, _name: str) -> Engine:
            return self

        def logs(self, **asked: object) -> bytes:
            assert asked == {"tail": LOG_LINES, "timestamps": True, "since": since}
            return b"a line\n"

    containers = Containers()
    containers._client = Engine()  # type: ignore[assignment]
    assert containers.log("headfirst-engine") == ["a line"]
