"""The parts of an answer that the cases read, with their types proven: a server may send anything.

Names and structure are those of OpenAI's API reference, with the fields that engines add.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from headfirst.common.errors import HeadfirstError
from headfirst.common.untrusted import shown

# Statuses of a server that refuses a request.
REFUSALS = frozenset({400, 404, 405, 422, 501})
Count = Annotated[int, Field(ge=0, le=2**53)]
_LONGEST_TEXT = 4 << 20


class FailedCase(HeadfirstError):
    """The service does not do what the case is for."""


class NotSupportedCase(HeadfirstError):
    """The engine or the model lacks what the case is for."""


class NotCalledCase(HeadfirstError):
    """The model was free to call a tool, and answered with text."""


class RefusedRequest(FailedCase):
    """An answer with an error's status; `message` is the server's own text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the service answers {status}: {message}")
        self.status = status
        self.message = message


class _ApiAnswer(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, str_max_length=_LONGEST_TEXT)


class Usage(_ApiAnswer):
    """Tokens of a request."""

    prompt_tokens: Count
    completion_tokens: Count | None = 0


class Function(_ApiAnswer):
    """A call as the model writes it; `arguments` is JSON."""

    name: str
    arguments: str


class ToolCall(_ApiAnswer):
    """One call of a tool."""

    id: str
    function: Function


class Delta(_ApiAnswer):
    """A piece of a message; engines name the thinking differently."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    @property
    def thinking(self) -> str:
        """The text of a reasoning parser."""
        return self.reasoning_content or self.reasoning or ""

    @property
    def text(self) -> str:
        """All that the model has generated as text."""
        return self.thinking + (self.content or "")


class ChatMessage(Delta):
    """The whole of what the model writes."""

    tool_calls: list[ToolCall] | None = None


class TopLogprob(_ApiAnswer):
    """A token that was considered, with the logarithm of its probability."""

    token: str
    logprob: FiniteFloat


class TokenLogprob(TopLogprob):
    """A token of the answer."""

    top_logprobs: list[TopLogprob] = []


class Logprobs(_ApiAnswer):
    """Token for token."""

    content: list[TokenLogprob] | None = None


class ChatChoice(_ApiAnswer):
    """One answer of a chat."""

    index: int
    message: ChatMessage
    finish_reason: str | None = None
    logprobs: Logprobs | None = None


class ChatAnswer(_ApiAnswer):
    """POST /v1/chat/completions."""

    choices: Annotated[list[ChatChoice], Field(min_length=1)]
    usage: Usage

    @property
    def text(self) -> str:
        """The first answer."""
        return self.choices[0].message.text


class ChunkChoice(_ApiAnswer):
    """A piece of one answer."""

    delta: Delta
    finish_reason: str | None = None


class Chunk(_ApiAnswer):
    """One event of a stream; the one with `usage` has no choices."""

    choices: list[ChunkChoice] = []
    usage: Usage | None = None


class CompletionChoice(_ApiAnswer):
    """One answer of a completion."""

    text: str


class Completion(_ApiAnswer):
    """POST /v1/completions."""

    choices: Annotated[list[CompletionChoice], Field(min_length=1)]
    usage: Usage


class ListedModel(_ApiAnswer):
    """One line of GET /v1/models; `parent` is that of a LoRA adapter."""

    id: str
    parent: str | None = None
    max_model_len: Count | None = None


class ModelList(_ApiAnswer):
    """GET /v1/models."""

    data: list[ListedModel]


class Embedding(_ApiAnswer):
    """One vector, as numbers or as base64 of little-endian float32."""

    index: int
    embedding: list[FiniteFloat] | str


class Embeddings(_ApiAnswer):
    """POST /v1/embeddings."""

    data: list[Embedding]


class Label(_ApiAnswer):
    """The class of one text."""

    label: str
    probs: Annotated[list[FiniteFloat], Field(min_length=1)]


class Labels(_ApiAnswer):
    """A classification."""

    data: list[Label]


A = TypeVar("A", bound=_ApiAnswer)


def read(kind: type[A], answer: Any) -> A:
    """The answer that the client has parsed, as `kind`; FailedCase where it is not what the API defines."""
    # The client does not check types: its objects hold whatever was sent.
    data = answer.model_dump(warnings=False) if isinstance(answer, BaseModel) else answer
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole of it"
        raise FailedCase(
            f"the answer is not what the API defines: {shown(place)}: {shown(first['msg'])}"
        ) from None
