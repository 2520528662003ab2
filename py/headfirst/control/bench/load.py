"""How much load there is at a point: so many requests at a time, or so many a second."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from headfirst.common.errors import InputError
from headfirst.decide.frozen import Frozen

Kind = Literal["concurrency", "rate"]
MAX_CONCURRENCY = 4096
MAX_RATE = 10_000.0
# Requests of a point where no number is asked for: enough for a p95, and some rounds of each slot.
_FEWEST, _ROUNDS, _RATE_SECONDS = 20, 4, 30


class Load(Frozen):
    """`concurrency`: each answer is followed by the next request. `rate`: requests arrive at random moments
    (Poisson), so many a second on average, whether or not the earlier ones are answered."""

    kind: Kind
    value: float = Field(gt=0, le=MAX_RATE)

    def __str__(self) -> str:
        return f"{self.value:g}" if self.kind == "concurrency" else f"{self.value:g}/s"

    def usual_requests(self) -> int:
        """How many requests measure it, where neither a number nor a time is asked for."""
        if self.kind == "rate":
            return max(_FEWEST, math.ceil(self.value * _RATE_SECONDS))
        return max(_FEWEST, _ROUNDS * int(self.value))

    def usual_warmup(self) -> int:
        """As many as run at a time, so that the first burst is not measured."""
        return int(self.value) if self.kind == "concurrency" else max(2, math.ceil(self.value))


def loads(kind: Kind, text: str) -> list[Load]:
    """`1,4,16` as loads in this order. InputError for what is no such list."""
    where = f"--{kind}"
    levels = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            raise InputError(f"{part!r} is not a number", where=where, hint="For example: 1,4,16") from None
        whole = kind == "rate" or value.is_integer()
        if not 0 < value <= (MAX_RATE if kind == "rate" else MAX_CONCURRENCY) or not whole:
            raise InputError(f"{part} cannot be a {kind}", where=where, hint="For example: 1,4,16")
        levels.append(Load(kind=kind, value=value))
    if len(set(levels)) < len(levels):
        raise InputError("a load is there twice", where=where)
    return levels


# Of the context, for the chat template and the spread of the words' lengths.
_SPARE = 0.1


class Shape(Frozen):
    """Lengths in tokens. `shared` of the `prompt` tokens are the same in every request, at its beginning."""

    name: str
    title: str
    prompt: int
    answer: int
    shared: int = 0

    def within(self, context: int | None) -> Shape:
        """The same proportions within a context of so many tokens; None: it is not known."""
        room = (context or 0) * (1 - _SPARE)
        tokens = self.prompt + self.answer
        if context is None or tokens <= room:
            return self
        factor = room / tokens
        short = {name: max(1, int(getattr(self, name) * factor)) for name in ("prompt", "answer")}
        return self.model_copy(update={**short, "shared": int(self.shared * factor)})


SHAPES = {
    shape.name: shape
    for shape in (
        Shape(name="chat", title="a question and an answer of some sentences", prompt=512, answer=256),
        Shape(name="long-prompt", title="a document and a short answer", prompt=8192, answer=128),
        Shape(name="long-answer", title="a short question and a long answer", prompt=256, answer=2048),
        Shape(
            name="shared-prefix",
            title="the same long instructions before each question",
            prompt=2304,
            answer=128,
            shared=2048,
        ),
    )
}
