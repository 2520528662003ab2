"""What the supervisor of a host reports: the state of the replicas that it keeps, and its history.

A host without a supervisor has neither: there the answers are empty.
"""

from __future__ import annotations

import contextlib
from typing import Any

from pydantic import Field, ValidationError

from headfirst.common.errors import HeadfirstError, NotReadyError
from headfirst.common.untrusted import UntrustedError, for_terminal, json_document
from headfirst.control.live.clock import LATEST, Clock, run_script
from headfirst.control.live.ssh_access.ssh import HostConnection, run
from headfirst.control.live.status_types import Supervision
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.frozen import Tolerant

STATE = "/run/headfirst/supervisor.json"
HISTORY = "/var/lib/headfirst/supervisor/events.jsonl"
_LONGEST = 8 << 20
_TIMEOUT_S = 30.0
# A supervisor writes its state each second, and systemd starts one again that stands still for 60 s.
_SILENT_S = 90.0
_READ_STATE = f"LC_ALL=C cat /proc/uptime {STATE}"
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


class HostEvent(Tolerant):
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


class HostHistory(Tolerant):
    """The events of a host, the oldest first, and its clock.

    `damaged` lines are no events: the power failed, or a disk.
    """

    events: list[HostEvent]
    damaged: int
    clock: Clock


def supervision(client: HostConnection) -> dict[str, Supervision]:
    """The replicas that the host's supervisor keeps, by the name of their containers.

    NotReadyError, UntrustedError: its state cannot be read, or it has ended, so that its state is an old one.
    """
    answer = run(client, _READ_STATE)
    if answer.code and "No such file" in answer.err:
        return {}
    if answer.code:
        raise NotReadyError(f"the state of the supervisor cannot be read: {for_terminal(answer.err.strip())}")
    uptime, _, text = answer.out.partition("\n")
    document = json_document(text, what="the state of the supervisor", depth=4)
    try:
        silent_s = float(uptime.split()[0]) - document["uptime"]
        replicas = {
            str(name): Supervision(
                for_s=max(0.0, document["uptime"] - replica["since"]),
                **{key: _clean(replica[key]) for key in Supervision.model_fields if key != "for_s"},
            )
            for name, replica in document["replicas"].items()
        }
    except (KeyError, TypeError, AttributeError, ValueError, IndexError):
        raise UntrustedError("the state of the supervisor is not valid") from None
    if silent_s > _SILENT_S:
        raise NotReadyError(f"the supervisor has been silent for {silent_s:.0f} s")
    return replicas


def of_container(client: HostConnection, name: str) -> Supervision | None:
    """The replica with this container; None where no supervisor keeps it."""
    try:
        return supervision(client).get(name)
    except (NotReadyError, UntrustedError) as error:
        return unknown(error)


def unknown(error: HeadfirstError) -> Supervision:
    """A replica whose supervisor cannot be read."""
    return Supervision(phase="unknown", text=error.what)


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
