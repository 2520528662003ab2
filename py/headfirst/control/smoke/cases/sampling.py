"""Every sampling parameter of OpenAI's API, each by an effect that it has with any model."""

from __future__ import annotations

from typing import Any

from headfirst.common.untrusted import shown
from headfirst.control.smoke.answers import ChatAnswer, FailedCase, NotSupportedCase, RefusedRequest
from headfirst.control.smoke.api import Api
from headfirst.control.smoke.verdict import case

_WRONG_VALUE = (400, 422)


@case("sampling.greedy")
def greedy(api: Api) -> str:
    """With temperature 0 two answers are equal."""
    return _equal(api.chat(), api.chat())


@case("sampling.temperature")
def temperature(api: Api) -> str:
    """A temperature is used; one below 0 is refused."""
    return _in_range(api, "temperature", good=0.3, bad=-1)


@case("sampling.top-p")
def top_p(api: Api) -> str:
    """With a tiny top_p the answer at temperature 1 is the greedy one."""
    _refuse_ignored(api, "top_p")
    return _equal(api.chat(), api.chat(temperature=1, top_p=0.001))


@case("sampling.presence-penalty")
def presence_penalty(api: Api) -> str:
    """presence_penalty is used; one above 2 is refused."""
    return _in_range(api, "presence_penalty", good=0.2, bad=3)


@case("sampling.frequency-penalty")
def frequency_penalty(api: Api) -> str:
    """frequency_penalty is used; one above 2 is refused."""
    return _in_range(api, "frequency_penalty", good=0.2, bad=3)


@case("sampling.n")
def n(api: Api) -> str:
    """n=2 gives two answers."""
    _refuse_ignored(api, "n")
    choices = api.chat(n=2, temperature=1).choices
    if sorted(choice.index for choice in choices) != [0, 1]:
        raise FailedCase(f"the answers have the indices {[choice.index for choice in choices][:5]}")
    if not all(choice.message.text for choice in choices):
        raise FailedCase("an answer has no text")
    return "2 answers"


@case("sampling.seed")
def seed(api: Api) -> str:
    """At temperature 1 two answers with one seed are equal."""
    _refuse_ignored(api, "seed")
    return _equal(*(api.chat(temperature=1, seed=42) for _ in range(2)))


@case("sampling.stop")
def stop(api: Api) -> str:
    """The answer ends before a stop text."""
    whole = api.chat().text
    words = whole.split()
    if not words:
        raise FailedCase("the answer has no text")
    text = words[1] if len(words) > 1 else whole[len(whole) // 2]
    choice = api.chat(stop=[text]).choices[0]
    expected = whole.partition(text)[0]
    if choice.message.text.strip() != expected.strip():
        raise FailedCase(f"with the stop text {shown(text)} the answer is {shown(choice.message.text)}")
    if choice.finish_reason != "stop":
        raise FailedCase(f"finish_reason is {shown(str(choice.finish_reason))}")
    return f"stops before {shown(text, 30)}"


@case("sampling.max-tokens")
def max_tokens(api: Api) -> str:
    """An answer has no more than max_tokens, and reports that as its end."""
    usual = api.chat().usage.completion_tokens or 0
    limit = max(1, min(usual // 2, 8))
    chat = api.chat(max_tokens=limit)
    tokens, reason = chat.usage.completion_tokens, chat.choices[0].finish_reason
    if tokens is None or not 1 <= tokens <= limit:
        raise FailedCase(f"{tokens} tokens with max_tokens={limit}")
    if limit < usual and reason != "length":
        raise FailedCase(f"finish_reason is {shown(str(reason))}, not length")
    return f"{tokens} tokens with max_tokens={limit}"


@case("sampling.logprobs")
def logprobs(api: Api) -> str:
    """logprobs and top_logprobs come with every token."""
    _refuse_ignored(api, "logprobs")
    chat = api.chat(logprobs=True, top_logprobs=2, max_tokens=8)
    choice = chat.choices[0]
    tokens = (choice.logprobs.content if choice.logprobs else None) or []
    if not tokens or len(tokens) > (chat.usage.completion_tokens or 0):
        raise FailedCase(f"{len(tokens)} logprobs for {chat.usage.completion_tokens} tokens")
    for token in tokens:
        if token.logprob > 0 or any(other.logprob > 0 for other in token.top_logprobs):
            raise FailedCase("a logprob is above 0")
        if len(token.top_logprobs) != 2:
            raise FailedCase(f"{len(token.top_logprobs)} top_logprobs for a token, not 2")
        best = max(other.logprob for other in token.top_logprobs)
        # Greedy: the token of the answer is the likeliest, but for ties that round differently.
        if token.logprob < best - 0.1:
            raise FailedCase("at temperature 0 a token of the answer is not the likeliest one")
    return f"{len(tokens)} tokens with 2 alternatives each"


def _refuse_ignored(api: Api, parameter: str) -> None:
    if reason := api.target.dialect.ignored.get(parameter):
        raise NotSupportedCase(reason)


def _equal(first: ChatAnswer, second: ChatAnswer) -> str:
    if not first.text:
        raise FailedCase("the answer has no text")
    if first.text != second.text:
        raise FailedCase(f"{shown(first.text, 60)} and {shown(second.text, 60)} differ")
    return f"two equal answers of {first.usage.completion_tokens} tokens"


def _in_range(api: Api, parameter: str, *, good: float, bad: float) -> str:
    """A value of the API's range is accepted and one outside is not: so the service reads the parameter."""
    _refuse_ignored(api, parameter)
    used: dict[str, Any] = {parameter: good}
    if not api.chat(**used).text:
        raise FailedCase("the answer has no text")
    try:
        wrong: dict[str, Any] = {parameter: bad}
        api.chat(**wrong)
    except RefusedRequest as error:
        if error.status not in _WRONG_VALUE:
            raise
        return f"{good:g} is used, {bad:g} is refused"
    raise FailedCase(f"{bad:g} is accepted: the service does not read the parameter")
