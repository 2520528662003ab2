"""Long prompts, prompts that are too long, and many requests at once."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

from headfirst.control.smoke.answers import FailedCase, NotSupportedCase, RefusedRequest
from headfirst.control.smoke.api import AT_ONCE, PROMPT, Api
from headfirst.control.smoke.verdict import case

_WORD = " one"
_SAMPLE = 100  # words that show how many tokens a word has
_LONGEST = 32_768  # tokens of a long prompt; more of it takes minutes and shows no more


@case("limits.long-input")
def long_input(api: Api) -> str:
    """A prompt near the context length is answered."""
    context = _context(api)
    aim = min(context * 9 // 10, _LONGEST)
    chat = api.chat(_prompt(api, aim), max_tokens=4)
    tokens = chat.usage.prompt_tokens
    if tokens < aim * 8 // 10:
        raise FailedCase(f"the prompt was cut to {tokens} tokens, of about {aim}")
    return f"{tokens} tokens of prompt; the context has {context}"


@case("limits.too-long")
def too_long(api: Api) -> str:
    """A prompt longer than the context is answered with 400, and the next chat is answered."""
    context = _context(api)
    prompt = _prompt(api, context * 11 // 10 + _SAMPLE)
    try:
        chat = api.chat(prompt, max_tokens=4)
    except RefusedRequest as error:
        if error.status not in (400, 413, 422):
            raise
        said = error.what
    else:
        raise FailedCase(
            f"{chat.usage.prompt_tokens} tokens of prompt are answered; the context has {context}"
        )
    if not api.chat(PROMPT).text:
        raise FailedCase("the next answer has no text")
    return said


@case("limits.at-once")
def at_once(api: Api) -> str:
    """32 requests at once, or as many as the service accepts, are all answered."""
    most = min(AT_ONCE, api.target.dialect.at_once or AT_ONCE)

    def ask(number: int) -> str | None:
        try:
            return None if api.chat(f"Count to {number + 2}.", max_tokens=8).text else "an answer has no text"
        except FailedCase as error:
            return error.what

    api.chat(max_tokens=1)  # a service of another task refuses it here
    with ThreadPoolExecutor(most) as pool:
        problems = [problem for problem in pool.map(ask, range(most)) if problem]
    if problems:
        raise FailedCase(f"{len(problems)} of {most} are not answered: {problems[0]}")
    return f"{most} answers"


def _context(api: Api) -> int:
    """Tokens of prompt and answer together, as the service reports them."""
    for model in api.models().data:
        if model.id == api.target.model and model.max_model_len:
            return model.max_model_len
    raise NotSupportedCase(f"{api.target.engine} does not report the context length in /v1/models")


def _prompt(api: Api, tokens: int) -> str:
    """A text of about this many tokens in this model's own tokenizer."""
    base, more = (api.chat(_WORD * count, max_tokens=1).usage.prompt_tokens for count in (1, _SAMPLE + 1))
    if more <= base:
        raise FailedCase(
            f"{more} tokens for {_SAMPLE + 1} words, and {base} for one: the prompt is not counted"
        )
    return _WORD * max(1, math.ceil((tokens - base) * _SAMPLE / (more - base)))
