"""Requests that must be refused, with the status that OpenAI's API has for it."""

from __future__ import annotations

import secrets
from typing import Any

import openai

from headfirst.control.smoke.answers import FailedCase, NotSupportedCase, RefusedRequest
from headfirst.control.smoke.api import Api
from headfirst.control.smoke.verdict import ANY_TASK, case


@case("errors.wrong-key", ANY_TASK)
def wrong_key(api: Api) -> str:
    """A wrong key is answered with 401."""
    return _unauthorized(api, f"Bearer {secrets.token_hex(16)}")


@case("errors.no-key", ANY_TASK)
def no_key(api: Api) -> str:
    """A request without a key is answered with 401."""
    return _unauthorized(api, openai.Omit())


def _unauthorized(api: Api, authorization: Any) -> str:
    return _refused(
        lambda: api.chat(extra_headers={"Authorization": authorization}), (401,), "it is answered"
    )


@case("errors.unknown-model")
def unknown_model(api: Api) -> str:
    """A model that is not served is answered with 404 or 400 and its name."""
    if reason := api.target.dialect.ignored.get("model"):
        raise NotSupportedCase(reason)
    api.chat(max_tokens=1)  # a service of another task refuses it here
    name = "no-such-model"
    said = _refused(lambda: api.chat(model=name), (400, 404), "another model answers")
    if name not in said:
        raise FailedCase(f"the message does not contain the model's name: {said}")
    return said


@case("errors.empty-messages")
def empty_messages(api: Api) -> str:
    """A chat without messages is answered with 400."""
    api.chat(max_tokens=1)  # a service of another task refuses it here
    return _refused(lambda: api.chat([]), (400, 422), "it is answered")


def _refused(request: Any, statuses: tuple[int, ...], otherwise: str) -> str:
    try:
        request()
    except RefusedRequest as error:
        if error.status not in statuses:
            raise FailedCase(f"{error.what}; expected was {statuses[0]}") from None
        return f"{error.status}: {error.message}"
    raise FailedCase(otherwise)
