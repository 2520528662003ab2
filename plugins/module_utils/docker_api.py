"""The Docker Engine's HTTP API over its socket, where the SDK may be missing, and its times. Python 3.8+."""

from __future__ import annotations

import http.client
import json
import re
import socket
import typing as t
from datetime import datetime

# Docker writes 2026-01-31T10:20:30.123456789Z, Podman a local time with its offset.
TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")
SOCKET = "/var/run/docker.sock"
TIMEOUT_S = 20.0


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over the engine's socket."""

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(SOCKET)


def get(path: str) -> t.Dict[str, t.Any]:
    """The engine's answer to GET `path`; empty when there is no engine, no answer, or no such thing."""
    connection = _UnixConnection("localhost")
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return json.loads(answer.read()) if answer.status == 200 else {}
    except (OSError, http.client.HTTPException):
        return {}
    finally:
        connection.close()


def is_podman(version: t.Dict[str, t.Any]) -> bool:
    """Whether an answer to GET /version is Podman's."""
    return any(part.get("Name") == "Podman Engine" for part in version.get("Components") or [])


def seconds(text: str) -> float:
    """Seconds since 1970 of a time of the API; ValueError where it is none."""
    time = TIME.fullmatch(text)
    if time is None:
        raise ValueError(f"not a time: {text!r}")
    whole, fraction, zone = time.groups()
    return datetime.fromisoformat(whole + zone.replace("Z", "+00:00")).timestamp() + float(fraction or 0)
