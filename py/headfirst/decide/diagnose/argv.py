"""Flags of a rank's command line, as its container has it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from headfirst.common.scrub import MASK

_FLAG = re.compile(r"--?[a-zA-Z]")  # and not a negative number


def values(argv: Sequence[str]) -> dict[str, str]:
    """Flag → its values, joined by a space; what comes before the first flag is `command`."""
    found: dict[str, str] = {}
    flag = "command"
    for word in argv:
        if _FLAG.match(word):
            flag, _, value = word.partition("=")
            found[flag] = value
        else:
            found[flag] = f"{found.get(flag, '')} {word}".strip()
    return found


def masked(argv: Sequence[str], secret: Collection[str]) -> tuple[str, ...]:
    """The words with the values of the flags in `secret` hidden."""
    shown, hide = [], False
    for word in argv:
        flag, equals, _ = word.partition("=")
        if _FLAG.match(word):
            hide = flag in secret
            shown.append(f"{flag}={MASK}" if hide and equals else word)
        else:
            shown.append(MASK if hide else word)
    return tuple(shown)
