"""The user's arguments by vLLM's parser, then by what its server checks before it loads a model.

Source: entrypoints/common/cli_args.py (validate_parsed_serve_args, validate_api_server_args),
config/parallel.py (_validate_parallel_config).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headfirst.decide.engines import argument_check
from headfirst.decide.engines.argument_check import Specification
from headfirst.decide.engines.base import Arguments, Problem
from headfirst.decide.engines.vllm import words

# flag given -> (its destination, the destination it needs, the flag to write)
_NEEDS = (
    ("enable_auto_tool_choice", "tool_call_parser", "--tool-call-parser"),
    ("enable_log_outputs", "enable_log_requests", "--enable-log-requests"),
    ("enable_eplb", "enable_expert_parallel", "--enable-expert-parallel"),
    ("numa_bind_nodes", "numa_bind", "--numa-bind"),
    ("numa_bind_cpus", "numa_bind", "--numa-bind"),
)
# A parser by name, and the option whose file may bring more of them.
_REGISTERED = (
    ("--tool-call-parser", "tool_parser_plugin"),
    ("--reasoning-parser", "reasoning_parser_plugin"),
)


def check(spec: Specification, arguments: Sequence[str]) -> Arguments:
    """Read the arguments, in any of vLLM's spellings."""
    found = argument_check.check(spec, words.plain(arguments))
    more = [*_missing(found.values), *_unregistered(spec, found.values)]
    return Arguments(found.values, (*found.problems, *more))


def _missing(values: Mapping[str, Any]) -> Iterator[Problem]:
    for given, needed, flag in _NEEDS:
        if values.get(given) and not values.get(needed):
            name = f"--{given.replace('_', '-')}"
            yield Problem(name, f"{name} does not work without {flag}.", f"Add {flag}.")


def _unregistered(spec: Specification, values: Mapping[str, Any]) -> Iterator[Problem]:
    for flag, plugin in _REGISTERED:
        option = spec.options[flag]
        name = values.get(option["dest"])
        if name and name.lower() != "none" and not values.get(plugin) and name not in option["registered"]:
            listed = ", ".join(option["registered"])
            yield Problem(flag, f"{flag} cannot be {name!r}.", f"Its values are {listed}.")
