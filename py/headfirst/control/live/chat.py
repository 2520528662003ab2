"""Talks to an engine's OpenAI-compatible API: the answer as it is written, one question or a conversation."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx
from rich.console import Console

from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.common.untrusted import UntrustedError, for_terminal, joined, json_document
from headfirst.control.live.ssh_access.tunnel import local_client

# Between two pieces of an answer; a long prompt before the first one takes a while.
_READ_TIMEOUT_S = 300.0
_CONNECT_TIMEOUT_S = 10.0
_MAX_LINE = 1 << 20
_OF_CHAT = ("model", "messages", "stream")


class Piece(NamedTuple):
    """A few characters of an answer; `reasoning` marks the thinking that some models send first."""

    text: str
    reasoning: bool


class Chat:
    """A conversation with one model; each question is sent with the conversation before it.

    `base_url` is the engine's address without `/v1`; `parameters` are in the body of each request.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None,
        system: str | None = None,
        parameters: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._model = model
        self._parameters = parameters
        timeout = httpx.Timeout(_READ_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
        self._http = local_client(base_url, api_key, timeout)
        self._system = [{"role": "system", "content": system}] if system else []
        self._said: list[dict[str, str]] = []

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def ask(self, question: str) -> Iterator[Piece]:
        """The answer, piece by piece. An answer that is not read to its end is not remembered.

        Raises NotReadyError when the engine does not answer, HeadfirstError when it refuses.
        """
        message = {"role": "user", "content": question}
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [*self._system, *self._said, message],
            "stream": True,
            **self._parameters,
        }
        answer = ""
        with self._errors(), self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                said = joined(response.iter_bytes(), what="the engine's answer", limit=_MAX_LINE)
                raise _refused(response.status_code, said)
            for piece in _pieces(_lines(response.iter_bytes())):
                answer += "" if piece.reasoning else piece.text
                yield piece
        self._said += [message, {"role": "assistant", "content": answer}]

    def forget(self) -> None:
        """Begin a new conversation."""
        self._said.clear()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        hint = "`deploy status` shows whether it runs."
        try:
            yield
        except httpx.TimeoutException as error:
            raise NotReadyError("the engine does not answer in time", hint=hint) from error
        except httpx.TransportError as error:
            raise NotReadyError("the engine does not answer", hint=hint) from error


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """Parameters of a request from NAME=VALUE; a value is JSON, else a text. InputError for what is none."""
    parameters: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals) or name in _OF_CHAT:
            raise InputError(
                f"--parameter {word} is no parameter of a chat",
                hint=f"Write NAME=VALUE, such as temperature=0.3; `deploy` sets {', '.join(_OF_CHAT)}.",
            )
        try:
            parameters[name] = json.loads(text)
        except ValueError:
            parameters[name] = text
    return parameters


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Lines of a stream, each of a bounded length."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip("\r")
        if len(rest) > _MAX_LINE:
            raise UntrustedError(f"a part of the engine's answer is larger than {_MAX_LINE} bytes")
    if rest:
        yield rest.decode(errors="replace")


def _pieces(lines: Iterator[str]) -> Iterator[Piece]:
    """Pieces from the lines of a server-sent event stream."""
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        event = json_document(data, what="a part of the engine's answer")
        if isinstance(event, dict) and "error" in event:
            raise HeadfirstError(f"the engine stopped the answer: {_message(event)}")
        try:
            deltas = [choice.get("delta") or {} for choice in event.get("choices", [])]
            parts = [(delta.get("reasoning_content"), delta.get("content")) for delta in deltas]
        except (AttributeError, TypeError):
            raise UntrustedError("a part of the engine's answer does not match the API") from None
        for thought, said in parts:
            if thought:
                yield Piece(str(thought), reasoning=True)
            if said:
                yield Piece(str(said), reasoning=False)


def _refused(status: int, body: bytes) -> HeadfirstError:
    if status == 401:
        return HeadfirstError(
            "the engine refuses the API key", hint="Check whether it was deployed again with another key."
        )
    try:
        message = _message(json_document(body, what="the answer"))
    except UntrustedError:
        message = body.decode(errors="replace").strip()[:200]
    return HeadfirstError(f"the engine answers {status}: {message}")


def _message(body: Any) -> str:
    """The text of an error; engines put it at `error.message`, `error` or `message`."""
    error = body.get("error", body) if isinstance(body, dict) else body
    return str(error.get("message", error) if isinstance(error, dict) else error)


_HELP = "Enter sends. /new starts a new conversation, /exit or Ctrl-D ends."


def print_answer(chat: Chat, question: str, console: Console) -> None:
    """Print the answer as it is written; thinking is dim. Ctrl-C (KeyboardInterrupt) breaks it off."""
    thinking = False
    for piece in chat.ask(question):
        if thinking and not piece.reasoning:
            console.print("\n")
        thinking = piece.reasoning
        style = "dim" if piece.reasoning else None
        console.print(
            for_terminal(piece.text), end="", style=style, markup=False, highlight=False, soft_wrap=True
        )
    console.print()


def converse(chat: Chat, console: Console) -> None:
    """Ask for questions and print answers until /exit or the end of input; Ctrl-C stops an answer."""
    console.print(_HELP, style="dim")
    while True:
        try:
            question = console.input("[bold cyan]> [/]").strip()
        except (EOFError, KeyboardInterrupt):
            console.print()
            return
        if question == "/exit":
            return
        if question == "/new":
            chat.forget()
        elif question:
            try:
                print_answer(chat, question, console)
            except KeyboardInterrupt:
                console.print(" (stopped)", style="dim")
