"""A container as the Docker Engine describes it, with its types proven, on the controller and on a node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headfirst.common.untrusted import UntrustedError, for_terminal, integer, line

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)")
_MAX_ARGUMENTS, _MAX_ARGUMENT, _MAX_ERROR = 4096, 1 << 16, 4096


@dataclass(frozen=True)
class ContainerState:
    """A container. `status` is Docker's: created, running, paused, restarting, removing, exited or dead.

    Times are RFC 3339; those of the year 1 stand for never. `restarts` are Docker's own.
    """

    id: str
    image: str
    image_id: str
    argv: tuple[str, ...]
    status: str
    health: str | None
    exit_code: int
    oom_killed: bool
    error: str
    restarts: int
    created_at: str
    started_at: str
    finished_at: str

    @property
    def running(self) -> bool:
        """Whether its processes run: not paused, and not between two tries of a restart policy."""
        return self.status == "running"

    @property
    def started_s(self) -> int:
        """When it was started last, in whole seconds since 1970; negative where it never was."""
        return _seconds(self.started_at)


def container_state(description: Any, *, where: str | None = None) -> ContainerState:
    """What `docker inspect` prints of a container; UntrustedError where the API does not define that."""
    try:
        state = description["State"]
        health = (state.get("Health") or {}).get("Status")
        return ContainerState(
            id=_text(description["Id"]),
            image=_text(description["Config"]["Image"]),
            image_id=_text(description["Image"]),
            argv=_argv(description["Path"], description["Args"] or []),
            status=_text(state["Status"]),
            health=None if health is None else _text(health),
            exit_code=integer(state["ExitCode"], what="an exit code", low=-(2**31), high=2**31 - 1),
            oom_killed=bool(state.get("OOMKilled")),
            error=for_terminal(state.get("Error") or "")[:_MAX_ERROR],
            restarts=integer(description["RestartCount"], what="the count of restarts"),
            created_at=_time(description["Created"]),
            started_at=_time(state["StartedAt"]),
            finished_at=_time(state["FinishedAt"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        what = f"its Docker Engine does not describe a container as the API defines: {reason[:100]}"
        raise UntrustedError(what, where=where) from None
    except UntrustedError as error:
        raise UntrustedError(
            f"its Docker Engine describes a container wrongly: {error.what}", where=where
        ) from None


def _text(value: Any) -> str:
    return line(value, what="a name or a state")


def _argv(program: str, arguments: list[str]) -> tuple[str, ...]:
    if not isinstance(arguments, list):
        raise UntrustedError("its command line is no list")
    words = [program, *arguments]
    if len(words) > _MAX_ARGUMENTS or any(len(word) > _MAX_ARGUMENT for word in words):
        raise UntrustedError("its command line is too long")
    return tuple(for_terminal(word) for word in words)


def _time(value: Any) -> str:
    text = line(value, what="a time", limit=64)
    try:
        _seconds(text)
    except ValueError:
        raise UntrustedError(f"a time is none: {text}") from None
    return text


def _seconds(text: str) -> int:
    """A time of the API in whole seconds since 1970; ValueError where it is none."""
    time = _TIME.fullmatch(text)
    if not time:
        raise ValueError(text)
    return int(datetime.fromisoformat(time[1] + time[2].replace("Z", "+00:00")).timestamp())
