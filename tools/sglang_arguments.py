#!/usr/bin/env python3
"""Write SGLang's command line options as JSON, from its own parser.

Run it with the Python of an environment that has the wanted SGLang:
    SGLANG_USE_CPU_ENGINE=1 python tools/sglang_arguments.py py/headfirst/decide/engines/sglang
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import sglang
from engine_options import describe, write
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


def main() -> int:
    """Write arguments-<version>.json into the folder named on the command line."""
    parser = argparse.ArgumentParser(prog="sglang", add_help=False)
    ServerArgs.add_cli_args(parser)
    options = [describe(action, TYPES) for action in parser._actions if action.option_strings]
    source = "ServerArgs.add_cli_args, by tools/sglang_arguments.py"
    write(Path(sys.argv[1]), sglang.__version__, source, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
