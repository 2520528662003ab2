#!/usr/bin/env python3
"""Write SGLang's command line options as JSON, from its own parser.

Run it with the Python of an environment that has the wanted SGLang:
    SGLANG_USE_CPU_ENGINE=1 python tools/sglang_arguments.py py/headfirst/decide/engines/sglang
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import sglang
from sglang.srt.server_args import ServerArgs

# Parsers of a value with suffixes or structure, by function name -> how to check the text.
TYPES = {
    "int": "int",
    "float": "float",
    "human_readable_int": "human_int",
    "loads": "json",
    "json_list_type": "json",
    "parse_cuda_graph_config_arg": "json",
}


def describe(action: argparse.Action) -> dict[str, Any]:
    """One option as headfirst.decide.engines.arguments reads it: its spellings and what it takes."""
    name = getattr(action.type, "__name__", None) if action.type else "str"
    option: dict[str, Any] = {"flags": list(action.option_strings), "dest": action.dest}
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        option["type"] = "flag"
    else:
        option["type"] = TYPES.get(str(name), "str")
        if action.nargs is not None:
            option["nargs"] = action.nargs
    if action.choices is not None:
        option["choices"] = sorted(action.choices, key=str)
    return option


def main() -> int:
    """Write arguments-<version>.json into the folder named on the command line."""
    parser = argparse.ArgumentParser(prog="sglang", add_help=False)
    ServerArgs.add_cli_args(parser)
    options = [describe(action) for action in parser._actions if action.option_strings]
    target = Path(sys.argv[1]) / f"arguments-{sglang.__version__}.json"
    lines = ",\n".join(f"  {json.dumps(option, ensure_ascii=False)}" for option in options)
    source = "ServerArgs.add_cli_args, by tools/sglang_arguments.py"
    target.write_text(f'{{\n "source": "{source}",\n "options": [\n{lines}\n ]\n}}\n', encoding="utf-8")
    print(f"{target}: {len(options)} options")
    return 0


if __name__ == "__main__":
    sys.exit(main())
