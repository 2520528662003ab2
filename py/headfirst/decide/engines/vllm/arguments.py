"""The user's arguments by vLLM's parser, then by what its server checks before it loads a model.

Source: utils/argparse_utils.py (parse_args: spellings that are rewritten before argparse sees them),
entrypoints/common/cli_args.py (validate_parsed_serve_args, validate_api_server_args), config/parallel.py
(_validate_parallel_config).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from headfirst.common.untrusted import finite_json
from headfirst.decide.engines import arguments
from headfirst.decide.engines.arguments import ArgumentProblem, Arguments, Specification, Values, size

_LEVEL = re.compile(r"-O(=?)(.+)")
_DOTTED = re.compile(r"(-{1,2}[^.=\s]+)\.([^=\s]+?)(\+)?(?:=(.*))?", re.DOTALL)

_SERVERS = ("--api-server-count", "-asc")
# A parser by name, and the option whose file may bring more of them.
_REGISTERED = (
    ("--tool-call-parser", "tool_parser_plugin"),
    ("--reasoning-parser", "reasoning_parser_plugin"),
)


def check(spec: Specification, words: Sequence[str]) -> Arguments:
    """Read the arguments, in any of vLLM's spellings."""
    checked = arguments.check(spec, plain(words))
    values = checked.values
    more = [*_unregistered(spec, values), *_without_server(values)]
    return replace(checked, problems=(*checked.problems, *more))


def _without_server(values: Values) -> Iterator[ArgumentProblem]:
    """Below 1 the head is a headless rank (entrypoints/cli/serve.py)."""
    if (number := values.get("api_server_count")) is not None and number < 1:
        what = f"--api-server-count {number} starts no server: nobody could ask the service."
        yield ArgumentProblem(what, "Leave it out, or write 1 or more.")


def without_servers(words: Sequence[str]) -> list[str]:
    """The arguments of a headless rank, which refuses a number of servers."""
    options = arguments.each(words)
    rank_options = [option for option in options if plain(option)[0].partition("=")[0] not in _SERVERS]
    return [word for option in rank_options for word in option]


def _unregistered(spec: Specification, values: Values) -> Iterator[ArgumentProblem]:
    for flag, plugin in _REGISTERED:
        option = spec.options.get(flag, {})
        name, known = values.get(str(option.get("dest"))), option.get("registered")
        if name and known and name.lower() != "none" and not values.get(plugin) and name not in known:
            listed = ", ".join(known)
            yield ArgumentProblem(f"{flag} cannot be {name!r}.", f"Its values are {listed}.")


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
            _put(objects.setdefault(_dashes(flag), {}), path.split(".", 64), _value(value, bool(several)))
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
        return finite_json(text)
    except ValueError:
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
