"""An OpenAI-compatible service that Headfirst did not deploy: its address, its key, the models it lists."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from headfirst.common.errors import InputError
from headfirst.common.untrusted import line, shown

KEY_VARIABLE = "HEADFIRST_COMPARE_KEY"
KEY_HINT = (
    f"Set the environment variable {KEY_VARIABLE}, or write the key into a file: --compare-key-file FILE."
)
_WHERE = "--compare"
_LOCAL = ("localhost", "127.0.0.1", "::1")
_ADDRESS = re.compile(r"[!-~]+")  # IDNA writes other host names so
_KEY = re.compile(r"[!-~]{1,4096}")  # what a header may hold
_MOST_SHOWN = 10
_LONGEST_NAME = 256


@dataclass(frozen=True)
class Address:
    """`url` without `/v1`. `model` and `key` are None where nobody has named one."""

    url: str
    model: str | None
    key: str | None = field(repr=False)
    warning: str = ""


def is_url(text: str) -> bool:
    """Whether it is the address of a service, and no path."""
    return text.lower().startswith(("http://", "https://"))


def address(url: str, model: str | None, key_file: Path | None) -> Address:
    """The service at `url`, with the key of the file or of the environment. InputError: one is invalid."""
    scheme, _, rest = url.partition("://")
    if "@" in rest:
        raise InputError("the address has a user name or a password", where=_WHERE, hint=KEY_HINT)
    if "?" in rest or "#" in rest:
        raise InputError(
            "the address has parameters after ? or #, which may be a key", where=_WHERE, hint=KEY_HINT
        )
    try:
        parts = urlsplit(url)
        valid = parts.hostname and _ADDRESS.fullmatch(url) and (parts.port is None or parts.port > 0)
    except ValueError:  # a port or an IPv6 address that is none
        valid = None
    if not valid:
        raise InputError(
            f"{shown(url)} has no host, or a port that is none",
            where=_WHERE,
            hint="Write the address as its clients do: https://llm.example.com/v1",
        )
    key = _key(key_file)
    plain = scheme.lower() == "http" and parts.hostname not in _LOCAL
    return Address(
        f"{scheme.lower()}://{rest.rstrip('/').removesuffix('/v1').rstrip('/')}",
        model,
        key,
        f"The key goes to {parts.netloc} unencrypted: the address begins with http://."
        if key and plain
        else "",
    )


def _key(file: Path | None) -> str | None:
    if file is None:
        content, where = os.environ.get(KEY_VARIABLE, "").strip() or None, KEY_VARIABLE
    else:
        where = str(file)
        try:
            content = file.read_bytes().decode("utf-8", "replace").strip()
        except OSError as error:
            raise InputError(f"the key cannot be read: {error.strerror}", where=where) from None
    if content is not None and not _KEY.fullmatch(content):
        raise InputError(
            "the key is not one word of printable ASCII",
            where=where,
            hint="Write the key there, and nothing else.",
        )
    return content


def chosen_model(api: Address, listed: Sequence[str]) -> str:
    """The model to ask, of those that the service lists.

    InputError: none is named and there is not one alone, or the named one is not listed. UntrustedError for a
    name that is no line of text.
    """
    names = [line(name, what="the name of a model", where=api.url, limit=_LONGEST_NAME) for name in listed]
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    shown_names = ", ".join(names[:_MOST_SHOWN]) + more
    if api.model is not None:
        if api.model in names:
            return api.model
        raise InputError(
            f"{api.url} does not serve {api.model}; it serves {shown_names or 'no model'}",
            where="--compare-model",
            hint="Write the name of a model that it serves.",
        )
    if len(names) != 1:
        problem = f"serves several models: {shown_names}" if names else "lists no model"
        raise InputError(
            f"{api.url} {problem}", where=_WHERE, hint="Name the model that is asked: --compare-model NAME"
        )
    return names[0]
