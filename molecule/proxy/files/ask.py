"""Sends requests through the proxy as people do, and prints what came back as JSON.

Usage: ask.py ADDRESS CERTIFICATE CASE...
A case is KEY:PATH, the key may be empty; the answer is [status, body], of a stream
[status, number of events].
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
from typing import Any


def ask(connection: http.client.HTTPSConnection, case: str) -> list[Any]:
    """Send one request on the connection."""
    key, _, path = case.partition(":")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    headers |= {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "gopher"}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    events = answer.getheader("Content-Type") == "text/event-stream"
    return [answer.status, body.count(b"data:") if events else json.loads(body)]


def main() -> None:
    """Carry out the command."""
    address, certificate, *cases = sys.argv[1:]
    context = ssl.create_default_context(cafile=certificate)
    connection = http.client.HTTPSConnection(address, context=context, timeout=30)
    print(json.dumps([ask(connection, case) for case in cases]))


if __name__ == "__main__":
    main()
