"""What a line must contain for a pattern to match it: most lines of a large log then need no pattern."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from ahocorasick import Automaton

_ESCAPED = '"\\<>&'  # by the JSON of Docker and journald


def index_of(patterns: Sequence[re.Pattern[str]], *, shortest: bool = False) -> Automaton:
    """Finds, in one pass over a text, the places in `patterns` of those that may match it.

    `iter` yields pairs: where a word ends in the text, and a tuple of places in ascending order. `shortest`:
    words that have another one in them are left out, which is enough to learn whether any pattern may match.
    """
    places: dict[str, list[int]] = defaultdict(list)
    for place, pattern in enumerate(patterns):
        for word in words_of(pattern):
            places[word].append(place)
    index = Automaton()
    for word, indices in places.items():
        if shortest and any(other in word for other in places if other != word):
            continue
        index.add_word(word, tuple(indices))
    index.make_automaton()
    return index


@cache
def words_of(pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Texts of ASCII, one of which is in whatever the pattern matches. ValueError where none need be."""
    words = () if pattern.flags & re.IGNORECASE else _words(parser.parse(pattern.pattern))
    if not words:
        raise ValueError(f"a line that it matches need not have any text: {pattern.pattern}")
    return words


def _words(items: Iterable[tuple[Any, Any]]) -> tuple[str, ...]:
    alternatives: list[tuple[str, ...]] = []
    run = ""
    for kind, value in chain(items, [(None, None)]):
        if kind is op.LITERAL and chr(value).isascii() and chr(value) not in _ESCAPED:
            run += chr(value)
            continue
        alternatives.append((run,) if run else ())
        run = ""
        if kind is op.SUBPATTERN:
            alternatives.append(_words(value[3]))
        elif kind in (op.MAX_REPEAT, op.MIN_REPEAT) and value[0]:
            alternatives.append(_words(value[2]))
        elif kind is op.BRANCH:
            branches = [_words(branch) for branch in value[1]]
            alternatives.append(tuple(chain(*branches)) if all(branches) else ())
    return max(alternatives, key=lambda words: min(map(len, words), default=0))
