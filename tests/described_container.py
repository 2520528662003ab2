"""A container as `docker inspect` describes it, for simulated Docker Engines."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

_BEGIN = datetime(2026, 1, 1, 10, tzinfo=timezone.utc)


def described(status: str = "running", *, id: str = "1" * 64, **state: Any) -> dict[str, Any]:
    """The description; `state` are further fields of its State."""
    return {
        "Id": id,
        "Image": "sha256:1",
        "Created": moment(0),
        "Path": "python3",
        "Args": [],
        "RestartCount": 0,
        "Config": {"Image": "engine:1"},
        "State": {
            "Status": status,
            "Running": status == "running",
            "Restarting": False,
            "ExitCode": 0,
            "OOMKilled": False,
            "Error": "",
            "StartedAt": moment(0),
            "FinishedAt": "0001-01-01T00:00:00Z",
            **state,
        },
    }


def moment(seconds: float) -> str:
    """A time as Docker writes it, so many seconds after the container was created."""
    return (_BEGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def states(running: bool) -> dict[str, Any]:
    """The fields of a State that a start or an end changes."""
    return {"Status": "running" if running else "exited", "Running": running}
