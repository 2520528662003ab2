"""One JSON object a line for other programs. docs/json-events.md is the schema."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import datetime, timezone
from typing import Any, TextIO

from headfirst.control.run.events import Event, HostFailed
from headfirst.control.run.reporters.reporter import Reporter

# Ansible's raw result is as long as the module makes it and not ours to promise.
_LEFT_OUT = {HostFailed: {"result"}}


def event_name(kind: type[Any]) -> str:
    """`StageStarted` → `stage_started`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def event_fields(kind: type[Any]) -> list[str]:
    """Names of the fields that an event of `kind` has in JSON, `event` and `time` aside."""
    return [item.name for item in dataclasses.fields(kind) if item.name not in _LEFT_OUT.get(kind, set())]


class JsonReporter(Reporter):
    """Writes each event as `{"event": …, "time": RFC 3339 UTC, …fields}` and flushes it."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def handle(self, event: Event) -> None:
        """Write one line."""
        fields = dataclasses.asdict(event)
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        record = {"event": event_name(type(event)), "time": now}
        record.update({name: fields[name] for name in event_fields(type(event))})
        print(json.dumps(record), file=self._out, flush=True)
