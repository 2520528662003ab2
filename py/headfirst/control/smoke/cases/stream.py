"""Answers as they are written."""

from __future__ import annotations

import contextlib

from headfirst.control.smoke.answers import FailedCase
from headfirst.control.smoke.api import PROMPT, Api
from headfirst.control.smoke.verdict import case


@case("stream.usage")
def usage(api: Api) -> str:
    """A stream has the answer in pieces, its end and its usage."""
    pieces, reasons, used = [], [], None
    for chunk in api.stream(stream_options={"include_usage": True}):
        pieces += [choice.delta.text for choice in chunk.choices if choice.delta.text]
        reasons += [choice.finish_reason for choice in chunk.choices if choice.finish_reason]
        used = chunk.usage or used
    if len(pieces) < 2:
        raise FailedCase(f"the answer comes in {len(pieces)} pieces")
    if len(reasons) != 1:
        raise FailedCase(f"the stream has {len(reasons)} events with a finish_reason, not 1")
    if used is None or not used.completion_tokens:
        raise FailedCase("the stream has no usage")
    return f"{len(pieces)} pieces, {used.completion_tokens} tokens"


@case("stream.abort")
def abort(api: Api) -> str:
    """A client that leaves in the midst of a stream does not disturb the next one."""
    with contextlib.closing(api.stream(max_tokens=256)) as chunks:  # type: ignore[type-var]
        first = next((chunk for chunk in chunks if any(choice.delta.text for choice in chunk.choices)), None)
    if first is None:
        raise FailedCase("the stream has no text")
    if not api.chat(PROMPT).text:
        raise FailedCase("the next answer has no text")
    return "left after the first piece; the next chat is answered"
