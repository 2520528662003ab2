"""Whether a server serves, by the readiness probe of a plan (Python 3.8 or newer, standard library only).

A probe has `path`, which answers 200; and, for a server of a model, `probe_path`, `probe_body` and `answer`:
the POST request, to which the model is added, and the keys and indices of something in its answer's JSON.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils import http_probe

Probe = t.Mapping[str, t.Any]
Ask = t.Callable[[str, t.Optional[t.Dict[str, t.Any]]], t.Tuple[int, str, str]]
"""Path and JSON body, None for a GET → (status, 0 where no server answers; text; what came back in words)."""


def serves(ask: Ask, probe: Probe, model: str) -> t.Tuple[bool, str]:
    """Return (it serves, the text of a chat's answer or what is wrong)."""
    status, _text, words = ask(probe["path"], None)
    if status != 200 or not probe.get("probe_path"):
        return status == 200, words
    return computes(ask, probe, model)


def computes(ask: Ask, probe: Probe, model: str) -> t.Tuple[bool, str]:
    """As `serves`, for the request to the model alone."""
    path, keys = probe["probe_path"], [str(key) for key in probe["answer"]]
    status, text, words = ask(path, {**probe["probe_body"], "model": model})
    if status != 200:
        return False, "{}: {}".format(path, words)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False, "{}: the answer is no JSON".format(path)
    if not http_probe.holds(document, keys):
        return False, "{}: the answer has nothing at {}".format(path, ".".join(keys))
    message = http_probe.value_at(document, ["choices", "0", "message"]) or {}
    # A reasoning model's first token is a thought; servers name its key differently.
    texts = [message.get(key) for key in ("content", "reasoning_content", "reasoning")]
    return True, next((text for text in texts if text), "")
