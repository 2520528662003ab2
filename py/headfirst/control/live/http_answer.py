"""One request to a service of ours: its answer is read up to a limit."""

from __future__ import annotations

from typing import Any

import httpx

from headfirst.common.untrusted import joined

# An engine generates a token for some of them, behind requests that are being served.
TIMEOUT_S = 15.0
ANSWER_BYTES = 1 << 20


def local_client(
    base_url: str, api_key: str | None = None, timeout: float | httpx.Timeout = TIMEOUT_S
) -> httpx.Client:
    """A client for the end of a tunnel on this machine; a proxy of the environment is not for it."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    return httpx.Client(base_url=base_url, headers=headers, timeout=timeout, trust_env=False)


def ask(
    client: httpx.Client, method: str, path: str, request: Any = None, *, limit: int = ANSWER_BYTES
) -> tuple[int, bytes]:
    """Status and body of an answer; UntrustedError for a body of more than `limit` bytes."""
    with client.stream(method, path, json=request, headers={"Accept-Encoding": "identity"}) as answer:
        return answer.status_code, joined(answer.iter_bytes(), what=f"the answer to {path}", limit=limit)


def problem(error: httpx.HTTPError) -> str:
    """Why there was no answer, in words."""
    if isinstance(error, httpx.TimeoutException):
        return f"no answer within {TIMEOUT_S:.0f} s"
    if isinstance(error, (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError)):
        return "nothing answers at its port"
    return str(error)
