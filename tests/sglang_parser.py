"""SGLang's own parser, in a Python that has SGLang: a virtual environment, or the engine's image."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

# Reads a JSON list of argument lists, and prints one line of JSON: what each of them is parsed to. Exits with
# argparse's message at the first that is refused.
PROGRAM = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
found = [vars(parser.parse_args(words)) for words in json.loads(sys.argv[1])]
print(json.dumps(found, default=str))
"""


def program_arguments(commands: Sequence[Sequence[str]]) -> list[str]:
    """What follows `python3`: the program, and the arguments of each `python3 -m sglang.launch_server`."""
    return ["-c", PROGRAM, json.dumps([list(command[3:]) for command in commands])]


def parsed(output: str) -> list[dict[str, Any]]:
    """The parser's values, by destination, of each command."""
    found: list[dict[str, Any]] = json.loads(output.splitlines()[-1])
    return found
