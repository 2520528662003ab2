"""Takes known secrets out of text and of results, as a second fence behind Ansible's no_log.

Passwords in URLs are masked whether they are known or not; `url_credentials` finds those of a run's settings,
so that they are masked where they appear without their URL too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

MASK = "********"
# Scheme and user information of a URL; a password may hold a raw @, and the host starts after the last one.
_USER_INFORMATION = re.compile(r"(?P<scheme>\b[a-zA-Z][a-zA-Z0-9+.-]*)://(?P<user>[^\s/?#\"'<>`]*)@")
# A user name without a password is a secret to these only: a token. Elsewhere (ssh) it is a name.
_TOKEN_SCHEMES = {"http", "https"}
# Shorter ones are masked within their URL alone: they are part of too many other words.
SHORTEST = 4


# Parts of a variable's name. The others are in names of numbers and switches, too.
_SECRET = re.compile(r"[A-Z]*(?:SECRET|PASSWORD|PASSPHRASE|APIKEY|CREDENTIAL)S?|PASSWD|KEY|AUTHORIZATION")
_OFTEN = re.compile(r"TOKENS?|KEYS|PWD|HEADERS")
_SWITCH = re.compile(r"(?:true|false|yes|no|on|off|none|auto|default|[-+.,\s\deE]*)", re.IGNORECASE)
# As hubs, clouds and APIs begin their tokens, and how private keys begin.
_TOKEN = re.compile(r"sk-|hf_|gh[opsur]_|github_pat_|glpat-|xox[a-z]-|AKIA|eyJ[\w-]+\.|Bearer |-----BEGIN ")


def is_secret(name: str, value: str) -> bool:
    """Whether a variable of a container is a secret, by its name or its value."""
    *parts, last = [part.rstrip("0123456789") for part in re.split(r"[^A-Z0-9]+", name.upper())]
    named = last == "PASS" or any(_SECRET.fullmatch(part) for part in (*parts, last))
    if _SWITCH.fullmatch(value):
        return named and value.isdecimal() and len(value) >= SHORTEST
    often = name != "PWD" and any(_OFTEN.fullmatch(part) for part in (*parts, last))
    return named or often or bool(_TOKEN.match(value) or url_credentials(value))


_WRITTEN = re.compile(
    r"\b(?:sk-|hf_|gh[opsur]_|github_pat_|glpat-|xox[a-z]-|AKIA|eyJ)[\w.-]{8,}"
    r"|(?i:(?<=bearer )|(?<=api.key[= ])|(?<=api.key=['\"])|(?<=password[= ])|(?<=token=))[^\s'\",)]+"
)


class Scrubber:
    """Replaces each of `secrets`, as it is or as JSON, YAML or a URL writes it, by asterisks."""

    def __init__(self, secrets: Sequence[str]) -> None:
        forms = {form for secret in secrets if secret for form in _forms(secret)}
        # Longest first, so that a secret which contains another one goes as a whole.
        ordered = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """`text` without the secrets."""
        if "://" in text:
            text = _USER_INFORMATION.sub(_masked, text)
        return self._pattern.sub(MASK, text) if self._pattern else text

    def value(self, value: Any) -> Any:
        """A copy of a JSON-like value without the secrets, in keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        return value


def without_tokens(text: str) -> str:
    """Text of an unknown program without what has the form of a secret: tokens, keys, passwords."""
    return _WRITTEN.sub(MASK, Scrubber(()).text(text))


def url_credentials(value: Any) -> frozenset[str]:
    """Passwords and tokens of the URLs in a JSON-like value, as they are written and decoded."""
    return frozenset(
        form
        for text in _texts(value)
        for match in _USER_INFORMATION.finditer(text)
        for secret in _secrets(match)
        for form in (secret, unquote(secret))
        if len(form) >= SHORTEST
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _secrets(match: re.Match[str]) -> list[str]:
    user, colon, password = match["user"].partition(":")
    if colon:
        return [password]
    return [user] if match["scheme"].lower() in _TOKEN_SCHEMES else []


def _masked(match: re.Match[str]) -> str:
    return f"{match['scheme']}://{MASK}@" if _secrets(match) else match[0]


def _forms(secret: str) -> tuple[str, ...]:
    return secret, json.dumps(secret)[1:-1], secret.replace("'", "''"), quote(secret, safe="")
