"""Answers that a grammar constrains. With a grammar any model gives them, however little it has learned."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headfirst.common.untrusted import UntrustedError, json_document, shown
from headfirst.control.smoke.answers import ChatAnswer, FailedCase, NotSupportedCase
from headfirst.control.smoke.api import Api
from headfirst.control.smoke.verdict import case
from headfirst.decide.engines.base import PATTERN

# A service that was started without a grammar backend.
_OFF = r"not support|unsupported|grammar[- ]backend"
# Finite: a model cannot continue without end inside of a value.
_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "enum": ["Paris", "Rome"]},
        "population": {"type": "integer", "enum": [2, 3]},
    },
    "required": ["name", "population"],
    "additionalProperties": False,
}
_QUESTION = "Give me a city and its population in millions."


@case("structured.json-schema", refusal=_OFF)
def json_schema(api: Api) -> str:
    """response_format=json_schema gives JSON of that schema."""
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": _SCHEMA, "strict": True}}
    # The grammar allows any amount of white space, of which a small model makes no end; the penalty does.
    # It would spoil a long thinking, and models that think are not that small.
    penalty = 0 if api.target.dialect.reasoning_parser else 2
    chat = api.chat(_QUESTION, response_format=form, max_tokens=api.room, frequency_penalty=penalty)
    text = _content(chat)
    try:
        document = json_document(text, what="the answer")
    except UntrustedError:
        raise FailedCase(f"the answer is not JSON: {shown(text)}") from None
    fits = (
        isinstance(document, dict)
        and document.keys() == {"name", "population"}
        and document["name"] in ("Paris", "Rome")
        and document["population"] in (2, 3)
    )
    if not fits:
        raise FailedCase(f"the answer breaks the schema: {shown(text)}")
    return shown(text, 60)


@case("structured.regex", refusal=_OFF)
def regex(api: Api) -> str:
    """The answer matches a regular expression."""
    pattern = "(yes|no)-[0-9]{3}"
    return _matches(api, api.target.dialect.regex, pattern, pattern)


@case("structured.grammar", refusal=_OFF)
def grammar(api: Api) -> str:
    """The answer is of an EBNF grammar."""
    rules = 'root ::= ("yes" | "no") "-" [0-9] [0-9]'
    return _matches(api, api.target.dialect.grammar, rules, "(yes|no)-[0-9]{2}")


def _matches(api: Api, spelling: Mapping[str, Any] | None, schema: str, expected: str) -> str:
    if spelling is None:
        raise NotSupportedCase(f"{api.target.engine} has no such request")
    body = _filled(spelling, schema)
    text = _content(api.chat("Is the sky blue?", extra_body=body, max_tokens=api.room))
    if not re.fullmatch(expected, text):
        raise FailedCase(f"the answer does not match: {shown(text)}")
    return shown(text, 60)


def _filled(spelling: Any, pattern: str) -> Any:
    """The spelling with the pattern in place."""
    if isinstance(spelling, Mapping):
        return {key: _filled(value, pattern) for key, value in spelling.items()}
    return pattern if spelling == PATTERN else spelling


def _content(chat: ChatAnswer) -> str:
    choice = chat.choices[0]
    if choice.finish_reason == "length":
        raise FailedCase(f"no end within {chat.usage.completion_tokens} tokens: {shown(chat.text)}")
    return (choice.message.content or "").strip()
