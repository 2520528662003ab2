"""The list of models, chats, completions."""

from __future__ import annotations

from headfirst.common.untrusted import shown
from headfirst.control.smoke.answers import Completion, FailedCase, read
from headfirst.control.smoke.api import PROMPT, Api
from headfirst.control.smoke.verdict import ANY_TASK, GENERATES, case

_HISTORY = [
    {"role": "user", "content": "Tell me about ancient Rome."},
    {"role": "assistant", "content": "Ancient Rome was a civilization centered in Italy."},
]
_SYSTEM = {"role": "system", "content": "You are a knowledgeable historian who gives concise answers."}


@case("models.listed", ANY_TASK)
def listed(api: Api) -> str:
    """GET /v1/models names the served model."""
    names = [model.id for model in api.models().data]
    if api.target.model not in names:
        raise FailedCase(f"{api.target.model} is not among them: {shown(', '.join(names)) or 'none'}")
    return shown(", ".join(names))


@case("chat.answer")
def answer(api: Api) -> str:
    """A chat is answered with text."""
    chat = api.chat()
    if not chat.text.strip():
        raise FailedCase("the answer has no text")
    return f"{chat.usage.completion_tokens} tokens: {shown(chat.text, 60)}"


@case("chat.turns")
def turns(api: Api) -> str:
    """Earlier turns of a conversation reach the model."""
    question = {"role": "user", "content": "What were their major achievements?"}
    return _more_tokens(api, [question], [*_HISTORY, question])


@case("chat.system", refusal="system")
def system(api: Api) -> str:
    """A system message reaches the model."""
    question = {"role": "user", "content": PROMPT}
    return _more_tokens(api, [question], [_SYSTEM, question])


def _more_tokens(api: Api, short: list[dict[str, str]], long: list[dict[str, str]]) -> str:
    """The longer conversation is answered, and costs more tokens of prompt: the template has it."""
    alone, both = api.chat(short, max_tokens=4), api.chat(long)
    if not both.text.strip():
        raise FailedCase("the answer has no text")
    if both.usage.prompt_tokens <= alone.usage.prompt_tokens:
        raise FailedCase(
            f"{both.usage.prompt_tokens} tokens of prompt, and {alone.usage.prompt_tokens} for the last "
            "message alone: the chat template leaves the rest out"
        )
    return f"{both.usage.prompt_tokens} tokens of prompt, {alone.usage.prompt_tokens} for the last message"


@case("completions.answer", GENERATES | {"completion"})
def completion(api: Api) -> str:
    """POST /v1/completions goes on with a text."""
    with api.errors():
        answer = api.client.completions.create(
            model=api.target.model, prompt="One, two, three,", max_tokens=8, temperature=0
        )
        response = read(Completion, answer)
    if not response.usage.completion_tokens:
        raise FailedCase("no token was generated")
    return f"{response.usage.completion_tokens} tokens: {shown(response.choices[0].text, 60)}"
