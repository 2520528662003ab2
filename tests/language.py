"""The words that the texts of Headfirst do not have: programs print, report, read and check."""

from __future__ import annotations

import re

_WORDS = re.compile(
    r"\b(says?|said|tells?|told|knows?|wants?(?!=)|looks?|looked|lies?|stands? (?!for)|anew|mends?"
    r"|reckons?|blotted|vouch\w*|for ever|what for|are fit|their own words|its own words)\b",
    re.IGNORECASE,
)


_CODE = re.compile(r"`[^`\n]*`")


def of_a_mind(text: str) -> list[str]:
    """The words of `text`, outside of code, that ascribe a mind to a program, each with its line from 1."""
    text = _CODE.sub("", text)
    return [f"line {text.count(chr(10), 0, word.start()) + 1}: {word[0]}" for word in _WORDS.finditer(text)]
