"""What the supervisor of a host reports: the state of the replicas that it keeps, and its history.

A host without a supervisor has neither: there the answers are empty.
"""

from __future__ import annotations

import contextlib
from typing import Any

import paramiko
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headfirst.common.untrusted import UntrustedError, for_terminal, json_document
from headfirst.control.live.clock import LATEST, Clock, run_script
from headfirst.control.live.ssh_access.access import HostAccess
from headfirst.control.live.ssh_access.ssh import run
from headfirst.control.live.status_types import Supervision

STATE = "/run/headfirst/supervisor.json"
HISTORY = "/var/lib/headfirst/supervisor/events.jsonl"
_LONGEST = 8 << 20
_TIMEOUT_S = 30.0
# Answers its clock for each line `time`, and then sends the history.
_SCRIPT = f"""\
import pathlib, sys, time
for line in sys.stdin:
    if line.strip() != "time":
        break
    print(repr(time.time()), flush=True)
file = pathlib.Path("{HISTORY}")
sys.stdout.buffer.write(file.read_bytes() if file.exists() else b"")
"""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class HostEvent(_Frozen):
    """One event of a host. `at` is seconds since 1970 on the controller's clock.

    `log` is of rank `rank`, `logs` of the others; their lines have times of the ranks' own clocks.
    """

    at: float = Field(ge=0, le=LATEST)
    name: str
    kind: str
    text: str
    rank: int = Field(default=0, ge=0, lt=1 << 16)
    log: list[str] = []
    logs: dict[int, list[str]] = {}


class HostHistory(_Frozen):
    """The events of a host, the oldest first, and its clock.

    `damaged` lines are no events: the power failed, or a disk.
    """

    events: list[HostEvent]
    damaged: int
    clock: Clock


def supervision(client: paramiko.SSHClient) -> dict[str, Supervision]:
    """The replicas that the host's supervisor keeps, by the name of their containers."""
    answer = run(client, f"cat {STATE}")
    if answer.code != 0:
        return {}
    document = json_document(answer.out, what="the state of the supervisor", depth=4)
    try:
        return {
            str(name): Supervision(
                for_s=max(0.0, document["uptime"] - replica["since"]),
                **{key: _clean(replica[key]) for key in Supervision.model_fields if key != "for_s"},
            )
            for name, replica in document["replicas"].items()
        }
    except (KeyError, TypeError, AttributeError, ValidationError):
        raise UntrustedError("the state of the supervisor is not valid") from None


def history(access: HostAccess) -> HostHistory:
    """The events of a host. Raises NotReadyError where it does not answer."""
    clock, content = run_script(access, _SCRIPT, what="its history", timeout_s=_TIMEOUT_S, limit=_LONGEST)
    return parsed(content, clock, access.host)


def parsed(content: bytes, clock: Clock, host: str) -> HostHistory:
    """The history that a host sent; `clock` is the host's."""
    events: list[HostEvent] = []
    lines = [line for line in content.split(b"\n") if line]
    for line in lines:
        with contextlib.suppress(UntrustedError):
            events.append(_event(line.decode(errors="replace"), clock, host))
    return HostHistory(events=events, damaged=len(lines) - len(events), clock=clock)


def _event(line: str, clock: Clock, host: str) -> HostEvent:
    try:
        document = json_document(line, what="an event", where=host, depth=3)
        cleaned = {key: _clean(value) for key, value in document.items() if key in HostEvent.model_fields}
        event = HostEvent(**cleaned)
        # Proven again: the clock is the node's, too.
        return HostEvent(**{**cleaned, "at": clock.corrected(event.at)})
    except (KeyError, TypeError, AttributeError, ValidationError):
        raise UntrustedError("an event of the supervisor is not valid", where=host) from None


def _clean(value: Any) -> Any:
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return for_terminal(value) if isinstance(value, str) else value
