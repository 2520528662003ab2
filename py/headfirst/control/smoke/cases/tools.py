"""Tool calls and reasoning: what parsers of the engine take out of the model's text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headfirst.common.errors import located
from headfirst.common.untrusted import UntrustedError, json_document, shown
from headfirst.control.smoke.answers import ChatMessage, FailedCase, NotCalledCase, NotSupportedCase, ToolCall
from headfirst.control.smoke.api import Api, Parser
from headfirst.control.smoke.verdict import case
from headfirst.decide.engines.presets import Purpose

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
    """With tool_choice=auto a model calls the tool that it is offered, or answers with text."""
    with _parser(api, "tools", api.target.dialect.tool_parser):
        message = _answer(api, "auto")
        if message.tool_calls:
            return _called(message.tool_calls[0])
        # In whatever format: the call's name with the name of its argument.
        if "get_weather" in (message.content or "") and "city" in (message.content or ""):
            raise FailedCase(f"the parser leaves the call in the answer: {shown(message.content or '')}")
        raise NotCalledCase(f"the model answers with text: {shown(message.text) or 'none'}")


@case("tools.named")
def named(api: Api) -> str:
    """A tool that the request names is called."""
    with _parser(api, "tools", api.target.dialect.tool_parser):
        message = _answer(api, {"type": "function", "function": {"name": "get_weather"}})
        if not message.tool_calls:
            why = api.target.dialect.named_tool
            raise FailedCase(f"no tool is called ({why}); the answer is {shown(message.text) or 'empty'}")
        return _called(message.tool_calls[0])


@contextmanager
def _parser(api: Api, purpose: Purpose, name: str | None) -> Iterator[None]:
    """Around requests that need the parser `name`. NotSupportedCase: the plan has none."""
    parser = api.target.parsers.get(purpose, Parser("", ""))
    title = "tool parser" if purpose == "tools" else "reasoning parser"
    if name is None:
        why = f": {parser.absent}" if parser.absent else ""
        raise NotSupportedCase(f"the service was started without a {title}{why}", hint=parser.line)
    with located(hint=parser.line):
        yield


def _answer(api: Api, choice: Any) -> ChatMessage:
    return api.chat(_QUESTION, tools=[_TOOL], tool_choice=choice, max_tokens=api.room).choices[0].message


def _called(call: ToolCall) -> str:
    name, text = call.function.name, call.function.arguments
    try:
        arguments = json_document(text, what="its arguments")
    except UntrustedError:
        raise FailedCase(f"the call's arguments are not JSON: {shown(text)}") from None
    is_listed = isinstance(arguments, dict) and arguments.get("city") in _CITIES
    if name != "get_weather" or not is_listed:
        raise FailedCase(f"not a call of the tool: {shown(name)}({shown(text)})")
    return f"{name}({shown(text, 60)})"


@case("reasoning.separate")
def separate(api: Api) -> str:
    """The model's thinking is apart from its answer."""
    question = "How many letters does the word strawberry have? Think first."
    with _parser(api, "reasoning", api.target.dialect.reasoning_parser):
        for more in ({}, _THINK):
            message = api.chat(question, max_tokens=api.room, extra_body=more).choices[0].message
            content, thought = message.content or "", message.thinking
            if "think>" in content:
                raise FailedCase(f"the answer holds the thinking: {shown(content)}")
            if thought:
                return f"{len(thought)} characters of thinking, {len(content)} of answer"
        raise FailedCase("the model does not think, also with enable_thinking")
