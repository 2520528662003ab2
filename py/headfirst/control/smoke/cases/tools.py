"""Tool calls and reasoning: what parsers of the engine take out of the model's text."""

from __future__ import annotations

from typing import Any

from headfirst.common.untrusted import UntrustedError, json_document, shown
from headfirst.control.smoke.answers import FailedCase, NotSupportedCase
from headfirst.control.smoke.api import Api
from headfirst.control.smoke.verdict import case

_CITIES = ["Paris", "Rome"]
_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": _CITIES}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
_QUESTION = "What is the weather in Paris right now? Use the tool get_weather."
# Chat templates name the switch differently; those that lack it pass over it.
_THINK = {"chat_template_kwargs": {"thinking": True, "enable_thinking": True}}


@case("tools.auto")
def auto(api: Api) -> str:
    """With tool_choice=auto a model that has a tool calls it."""
    return _call(api, "auto")


@case("tools.named")
def named(api: Api) -> str:
    """A tool that the request names is called."""
    return _call(api, {"type": "function", "function": {"name": "get_weather"}})


def _call(api: Api, choice: Any) -> str:
    if api.target.dialect.tool_parser is None:
        raise NotSupportedCase("the service was started without a tool parser")
    message = api.chat(_QUESTION, tools=[_TOOL], tool_choice=choice, max_tokens=api.room).choices[0].message
    if not message.tool_calls:
        raise FailedCase(f"no tool is called; the answer is {shown(message.text) or 'empty'}")
    call = message.tool_calls[0].function
    try:
        arguments = json_document(call.arguments, what="its arguments")
    except UntrustedError:
        raise FailedCase(f"the call's arguments are not JSON: {shown(call.arguments)}") from None
    known = isinstance(arguments, dict) and arguments.get("city") in _CITIES
    if call.name != "get_weather" or not known:
        raise FailedCase(f"not a call of the tool: {shown(call.name)}({shown(call.arguments)})")
    return f"{call.name}({shown(call.arguments, 60)})"


@case("reasoning.separate")
def separate(api: Api) -> str:
    """The model's thinking is apart from its answer."""
    if api.target.dialect.reasoning_parser is None:
        raise NotSupportedCase("the service was started without a reasoning parser")
    question = "How many letters does the word strawberry have? Think first."
    for more in ({}, _THINK):
        message = api.chat(question, max_tokens=api.room, extra_body=more).choices[0].message
        if "think>" in (message.content or ""):
            raise FailedCase(f"the answer holds the thinking: {shown(message.content or '')}")
        if message.thinking:
            return f"{len(message.thinking)} characters of thinking, {len(message.content or '')} of answer"
    raise FailedCase("the model does not think, also with enable_thinking")
