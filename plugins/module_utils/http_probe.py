"""Asking a server on this node whether it serves (Python 3.8 or newer, standard library only)."""

from __future__ import annotations

import json
import typing as t
import urllib.error
import urllib.request

# A node's proxy must not stand between it and its own service.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url: str, api_key: t.Optional[str], timeout_s: float) -> t.Tuple[bool, str]:
    """Return (the answer is 200, what came back in words)."""
    status, _, words = ask(url, api_key, None, timeout_s)
    return status == 200, words


def chat(base_url: str, model: str, api_key: t.Optional[str], timeout_s: float) -> t.Tuple[bool, str]:
    """Ask an OpenAI-compatible server for one token; return (it gave it, the answer or the fault)."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 1,
        "temperature": 0,
    }
    status, text, words = ask(base_url + "/v1/chat/completions", api_key, body, timeout_s)
    if status != 200:
        return False, "chat: " + words
    answer = json.loads(text)
    if not answer.get("usage", {}).get("completion_tokens"):
        return False, "chat: the answer holds no token"
    message = answer["choices"][0]["message"]
    # A reasoning model's first token is a thought.
    return True, message.get("content") or message.get("reasoning_content") or ""


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
