"""Asking a server on this node whether it serves (Python 3.8 or newer, standard library only)."""

from __future__ import annotations

import json
import typing as t
import urllib.error
import urllib.request

# A node's proxy must not be between it and its own service.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def holds(document: t.Any, keys: t.List[str]) -> bool:
    """Return whether there is something in a JSON document at these keys and indices.

    Null, 0 and what is empty are nothing; 0.0, a score, is something.
    """
    value = value_at(document, keys)
    return bool(value) or isinstance(value, float)


def value_at(document: t.Any, keys: t.List[str]) -> t.Any:
    """Return what is in a JSON document at these keys and indices, None where there is nothing."""
    for key in keys:
        if isinstance(document, dict):
            document = document.get(key)
        elif isinstance(document, list) and key.isdigit() and int(key) < len(document):
            document = document[int(key)]
        else:
            return None
    return document


def ask(
    url: str, api_key: t.Optional[str], body: t.Optional[t.Dict[str, t.Any]], timeout_s: float
) -> t.Tuple[int, str, str]:
    """Return (HTTP status or 0, the answer's text, what came back in words).

    POST when there is a body, else GET; status 0 means that no server answered.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError("{} is not an http or https address".format(url))
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = "Bearer " + api_key
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data=data, headers=headers)  # noqa: S310 - checked above
    try:
        with _OPENER.open(request, timeout=timeout_s) as response:
            return response.status, response.read().decode("utf-8", "replace"), "HTTP 200"
    except urllib.error.HTTPError as error:
        text = error.read(300).decode("utf-8", "replace").strip()
        return error.code, text, "HTTP {} {}".format(error.code, text).strip()
    except OSError as error:
        return 0, "", str(getattr(error, "reason", error))
