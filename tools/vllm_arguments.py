#!/usr/bin/env python3
"""Write the options of `vllm serve` as JSON, from vLLM's own parser.

Run it with the Python of an environment that has vLLM's dependencies; a CUDA wheel, unpacked, will do:
    PYTHONPATH=unpacked-wheel VLLM_TARGET_DEVICE=cpu \
        python tools/vllm_arguments.py py/headfirst/decide/engines/vllm
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import vllm
from engine_options import write

# Parsers of a value, by function name -> `type` in the specification (decide/engines/arguments.py).
TYPES = {
    "int": "int",
    "float": "float",
    "human_readable_int": "size",
    "human_readable_int_or_auto": "size_or_auto",
    "loads": "json",
    "union_dict_and_str": "json_or_str",
    "parse_dataclass": "config",
}
# Texts in the parser; vLLM ends at start unless they are registered, or a plugin file brings them.
REGISTERED = {
    "tool_call_parser": ("vllm.tool_parsers", "ToolParserManager"),
    "reasoning_parser": ("vllm.reasoning", "ReasoningParserManager"),
}


def make_parser() -> argparse.ArgumentParser:
    """The parser of `vllm serve`."""
    # vLLM reads the options' descriptions only where help is asked for.
    sys.argv.append("--help=all")
    parser = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser(prog="vllm serve")
    return of_command_line("make_arg_parser")(parser)


def of_command_line(name: str) -> Callable[..., Any]:
    """A function of vLLM's command line; its module has moved between releases."""
    for module in ("common.cli_args", "launchers.cli_args", "launchers.launcher"):
        try:
            return getattr(import_module(f"vllm.entrypoints.{module}"), name)
        except (ModuleNotFoundError, AttributeError):
            continue
    raise SystemExit(f"this vLLM has {name} in another module")


def unwrap(function: Callable[[str], Any] | None) -> tuple[Callable[[str], Any] | None, bool]:
    """The innermost converter, and whether one around it takes "None"."""
    optional = False
    while inspect.isfunction(function) and function.__name__ in ("_optional_type", "_parse_type"):
        optional |= function.__name__ == "_optional_type"
        function = inspect.getclosurevars(function).nonlocals["return_type"]
    return function, optional


def describe(action: argparse.Action) -> dict[str, Any]:
    """One option: its spellings, what it takes, and the first sentence of its help."""
    option: dict[str, Any] = {"flags": list(action.option_strings), "dest": action.dest}
    if isinstance(action, argparse.BooleanOptionalAction):
        option |= {"type": "flag", "negative": negatives(action)}
        option["flags"] = list(dict.fromkeys([*action.option_strings, *option["negative"]]))
    elif action.nargs == 0:
        option["type"] = "flag"
    else:
        option |= value(action)
    if isinstance(action.default, bool | int | float | str) and action.default != argparse.SUPPRESS:
        option["default"] = action.default
    text = re.sub(r"\s+", " ", action.help or "").strip().replace("%%", "%")
    if " is deprecated" in text:
        option["deprecated"] = True
    option["help"] = (
        re.split(r"(?<=[a-z)\]'\"`])[.:] ", text, maxsplit=1)[0].rstrip(".") + "." if text else ""
    )
    return option


def negatives(action: argparse.BooleanOptionalAction) -> list[str]:
    """The spellings that store False."""
    known = getattr(action, "negative_option_strings", None)
    return sorted(known if known is not None else (f for f in action.option_strings if f.startswith("--no-")))


def value(action: argparse.Action) -> dict[str, Any]:
    """What an option with a value takes."""
    converter, optional = unwrap(action.type)
    name = getattr(converter, "__name__", "str")
    option: dict[str, Any] = {"type": TYPES.get(name, "str")}
    if action.nargs is not None:
        option["nargs"] = action.nargs
    if isinstance(action, argparse._AppendAction):
        option["repeat"] = True
    if option["type"] == "config":
        cls = converter.__defaults__[0]
        option["keys"] = [field.name for field in dataclasses.fields(cls) if field.init]
    if action.dest in REGISTERED:
        module, manager = REGISTERED[action.dest]
        option["registered"] = sorted(getattr(import_module(module), manager).list_registered())
    if action.choices:
        option["choices"] = sorted(choice for choice in action.choices if choice is not None)
        if name == "<lambda>":
            option["type"] = "snake"
    if optional:
        option["none"] = True
    return option


def main() -> int:
    """Write arguments-<version>.json into the folder named on the command line."""
    options = [
        describe(action)
        for action in make_parser()._actions
        if action.option_strings and action.dest != "help"
    ]
    version = vllm.__version__.partition("+")[0]
    write(Path(sys.argv[1]), version, "make_arg_parser, by tools/vllm_arguments.py", options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
