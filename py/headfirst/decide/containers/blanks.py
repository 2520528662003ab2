"""Text with blanks: what only the host that runs a container has, such as its address, and secrets.

`mark(name)` is a text for code that puts texts together, such as an engine's command line; `parse` finds it
in the result. A mark begins and ends with NUL, which no argument and no variable of a process can contain,
so no other text is taken for one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headfirst.decide.frozen import Frozen

_END = "\0"

HEAD_ADDRESS = "head_address"  # of the host of rank 0
ADDRESS = "address"  # of the host itself
CONFIG_FILE = "config_file"  # the file with the API key, as the process sees it


class Blank(Frozen):
    """The place of a text that is filled in later."""

    blank: str


Text = str | list[str | Blank]


def mark(name: str) -> str:
    """What stands for the blank until `parse`."""
    return f"{_END}{name}{_END}"


def secret(name: str) -> str:
    """The name of the blank of a secret."""
    return f"secret:{name}"


def head_address_of(replica: int) -> str:
    """The name of the blank of the address of rank 0 of a replica."""
    return f"{HEAD_ADDRESS}:{replica}"


def api_key(service: str | None) -> str:
    """The mark of the key of a service's API."""
    return mark(api_key_blank(service))


def api_key_blank(service: str | None) -> str:
    """The name of the blank of that key."""
    return secret(f"api-key-{service}" if service else "api-key")


ADMIN_KEY = secret("engine-admin-key")
ENVIRONMENT = "env-"  # begins the names of secrets that no script can make


def environment(owner: str, names: Iterable[str]) -> dict[str, Text]:
    """The variables with the blanks of their values; `owner`: whose containers have them."""
    return {name: parse(mark(secret(f"{ENVIRONMENT}{owner}-{name}"))) for name in names}


def secret_of(name: str) -> str | None:
    """The secret of the blank with this name; None where it is no secret's."""
    kind, colon, rest = name.partition(":")
    return rest if colon and kind == "secret" else None


def parse(text: str) -> Text:
    """The text with its blanks; a plain string where it has none."""
    pieces = text.split(_END)
    if len(pieces) == 1:
        return text
    parts = [Blank(blank=piece) if index % 2 else piece for index, piece in enumerate(pieces)]
    return [piece for piece in parts if piece != ""]


def parse_json(value: Any) -> Text:
    """`parse` of a value as JSON, which escapes NUL."""
    return parse(json.dumps(value, separators=(",", ":")).replace("\\u0000", _END))


def parsed(texts: Mapping[str, str]) -> dict[str, Text]:
    """`parse` of each text, by its name."""
    return {name: parse(text) for name, text in texts.items()}


def joined(text: Text, *, plain: Callable[[str], str], blank: Callable[[str], str]) -> str:
    """The text as one string: `plain` and `blank` write its pieces and the names of its blanks."""
    if isinstance(text, str):
        return plain(text)
    return "".join(plain(piece) if isinstance(piece, str) else blank(piece.blank) for piece in text)


def filled(text: Text, values: Mapping[str, str]) -> str:
    """The text with `values` in its blanks. KeyError where one is missing."""
    return joined(text, plain=str, blank=values.__getitem__)


def blanks(text: Text) -> set[str]:
    """Names of the text's blanks."""
    return set() if isinstance(text, str) else {piece.blank for piece in text if isinstance(piece, Blank)}
