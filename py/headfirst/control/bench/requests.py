"""The requests of a run: the same for the same seed, but for a mark that is each run's own.

A prompt is random words. An engine keeps prompts in its prefix cache, so one that it has seen before costs it
next to nothing: a mark at the beginning makes the prompts of each run new to it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headfirst.common.errors import InputError
from headfirst.common.untrusted import UntrustedError, json_document
from headfirst.control.bench.load import Shape

WORDS = Path(__file__).with_name("words.txt").read_text().split()
MAX_DATASET_BYTES = 256 << 20
MAX_LINE_BYTES = 4 << 20


class Scale(NamedTuple):
    """Tokens of a prompt of n words: `fixed` + n × `per_word`. Measured on the served model."""

    per_word: float
    fixed: float = 0.0

    def words(self, tokens: int) -> int:
        """How many words make so many tokens, at least one."""
        return max(1, round((tokens - self.fixed) / self.per_word))


def sample(words: int, seed: str) -> str:
    """Random words."""
    rng = random.Random(seed)  # noqa: S311 - not a secret
    return " ".join(rng.choices(WORDS, k=words))


def of_shape(
    shape: Shape, scale: Scale, indices: range, *, model: str, seed: int, mark: str
) -> Iterator[dict[str, Any]]:
    """Bodies of the chat requests of a run that have these indices."""
    shared = sample(scale.words(shape.shared), f"{seed}/shared") + " " if shape.shared else ""
    words = scale.words(shape.prompt - shape.shared)
    for index in indices:
        text = f"{mark} {shared}{sample(words, f'{seed}/{index}')}"
        yield body(model, [{"role": "user", "content": text}], shape.answer)


def body(model: str, messages: Sequence[Any], answer: int) -> dict[str, Any]:
    """A request whose answer has exactly so many tokens, where the engine has `ignore_eos`."""
    return {
        "model": model,
        "messages": list(messages),
        "max_tokens": answer,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def of_dataset(
    lines: Sequence[dict[str, Any]], indices: range, *, model: str, answer: int
) -> Iterator[dict[str, Any]]:
    """Bodies from the lines of a dataset, from the first again after the last."""
    for index in indices:
        line = lines[index % len(lines)]
        yield body(model, line["messages"], line.get("max_tokens", answer))


def read_dataset(path: Path) -> list[dict[str, Any]]:
    """`messages`, and perhaps `max_tokens`, of each line of a file.

    A line is plain text, a JSON list of messages, or an object with `messages` or `prompt`, and with
    `max_tokens` if wanted. InputError names the first line that is none of these.
    """
    if not path.is_file():
        raise InputError(f"{path} is not a file", where="--dataset")
    if path.stat().st_size > MAX_DATASET_BYTES:
        raise InputError(f"{path} is larger than {MAX_DATASET_BYTES >> 20} MiB", where="--dataset")
    prompts = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if line.strip():
            prompts.append(_prompt(line.strip(), f"{path}:{number}"))
    if not prompts:
        raise InputError(f"{path} has no prompts", where="--dataset")
    return prompts


def _prompt(line: str, where: str) -> dict[str, Any]:
    if line[0] not in "[{":
        return {"messages": [{"role": "user", "content": line}]}
    try:
        document = json_document(line, what="the line", limit=MAX_LINE_BYTES)
    except UntrustedError as error:
        raise InputError(error.what, where=where) from None
    request = document if isinstance(document, dict) else {"messages": document}
    if isinstance(request.get("prompt"), str):
        request["messages"] = [{"role": "user", "content": request["prompt"]}]
    messages, length = request.get("messages"), request.get("max_tokens", 1)
    is_length = isinstance(length, int) and not isinstance(length, bool) and length > 0
    if not is_length or not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        raise InputError(
            "the line is not a chat request",
            where=where,
            hint='Write text, [{"role": "user", "content": "…"}, …] or {"messages": […], "max_tokens": 100}.',
        )
    return {name: request[name] for name in ("messages", "max_tokens") if name in request}


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and "content" in value


def write(bodies: Iterator[dict[str, Any]], path: Path) -> None:
    """One body a line."""
    with path.open("w", encoding="utf-8") as file:
        for request in bodies:
            file.write(json.dumps(request, ensure_ascii=False) + "\n")
