"""Spellings that vLLM's parser rewrites before argparse sees them (utils/argparse_utils.py, parse_args)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from headfirst.decide.engines.argument_check import size

_LEVEL = re.compile(r"-O(=?)(.+)")
_DOTTED = re.compile(r"(-{1,2}[^.=\s]+)\.([^=\s]+?)(\+)?(?:=(.*))?", re.DOTALL)


def plain(arguments: Sequence[str]) -> list[str]:
    """The arguments with one spelling for each option.

    `--max_model_len` becomes `--max-model-len`, `-O3` becomes `--optimization-level 3`, and
    `--eplb-config.window_size 1k --eplb-config.policy default` becomes one JSON object, at the end.
    """
    words: list[str] = []
    objects: dict[str, dict[str, Any]] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "-O" and rest and rest[0] in {"0", "1", "2", "3"}:
            words.append("--optimization-level")
        elif match := _LEVEL.fullmatch(word):
            words += ["--optimization-level", match[2]]
        elif (match := _DOTTED.fullmatch(word)) and (match[4] is not None or rest):
            flag, path, several, text = match.groups()
            value = rest.pop(0) if text is None else text
            _put(objects.setdefault(_dashes(flag), {}), path.split("."), _value(value, bool(several)))
        else:
            words.append(_dashes(word))
    for flag, value in objects.items():
        words += [flag, json.dumps(value)]
    return words


def _dashes(word: str) -> str:
    """A flag with dashes for underscores; its value is left alone."""
    if not word.startswith("--"):
        return word
    flag, equals, value = word.partition("=")
    return flag.replace("_", "-") + equals + value


def _value(text: str, several: bool) -> Any:
    if several:
        return text.split(",")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        try:
            return size(text)
        except ValueError:
            return text


def _put(target: dict[str, Any], path: list[str], value: Any) -> None:
    """Set `value` at `path`; lists given in several words are joined."""
    for key in path[:-1]:
        below = target.setdefault(key, {})
        target = below if isinstance(below, dict) else target.setdefault(key, {})
    last = path[-1]
    if isinstance(value, list) and isinstance(target.get(last), list):
        target[last] += value
    else:
        target[last] = value
