"""Shapes of load by name: how long prompts and answers are, and what prompts have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

# Of the context, for the chat template and the spread of the words' lengths.
_SPARE = 0.1


class Shape(BaseModel):
    """Lengths in tokens. `shared` of the `prompt` tokens are the same in every request, at its beginning."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    prompt: int
    answer: int
    shared: int = 0

    def within(self, context: int | None) -> Shape:
        """The same proportions within a context of so many tokens; None: it is not known."""
        room = (context or 0) * (1 - _SPARE)
        wanted = self.prompt + self.answer
        if context is None or wanted <= room:
            return self
        factor = room / wanted
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
