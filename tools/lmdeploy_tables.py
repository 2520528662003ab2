#!/usr/bin/env python3
"""Write LMDeploy's options and the models and quantisations of its two back ends as JSON, from its own code.

Run it with the Python of an environment that has the wanted LMDeploy; no GPU is needed:
    python tools/lmdeploy_tables.py py/headfirst/decide/engines/lmdeploy
"""

from __future__ import annotations

import ast
import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdeploy
from engine_options import describe, write
from lmdeploy.cli.serve import SubCliServe
from lmdeploy.messages import QuantPolicy
from lmdeploy.pytorch.config import QuantizationConfig
from lmdeploy.serve.parsers.reasoning_parser import (
    LEGACY_REASONING_PARSER_NAMES,
    ReasoningParserManager,
)
from lmdeploy.serve.parsers.tool_parser import ToolParserManager

HOME = Path(lmdeploy.__file__).parent

# Values that the parser takes as text and that LMDeploy checks after it.
CHOICES = {
    "tool_call_parser": sorted(ToolParserManager.module_dict),
    "reasoning_parser": sorted({*ReasoningParserManager.module_dict, *LEGACY_REASONING_PARSER_NAMES}),
    "quant_policy": sorted(
        {str(policy.value) for policy in QuantPolicy}
        | {policy.name.lower() for policy in QuantPolicy}
        | {"fp8_e4m3"}
    ),
}
TYPES = {"int": "int", "float": "float", "loads": "json"}
# Methods that published checkpoints name in config.json.
METHODS = ("awq", "bitsandbytes", "compressed-tensors", "fp8", "gptq", "mxfp4", "smooth_quant")


def pytorch_methods() -> list[str]:
    """The quantisation methods that the PyTorch engine reads from config.json."""
    return [method for method in METHODS if _pytorch_reads(method)]


def _pytorch_reads(method: str) -> bool:
    try:
        QuantizationConfig.from_config(SimpleNamespace(quantization_config={"quant_method": method}))
    except TypeError:  # "Unsupported quant method"
        return False
    except (KeyError, ValueError):  # the method is read further, and this empty configuration lacks the rest
        return True
    return True


def constant(file: str, name: str) -> Any:
    """The value assigned to `name` in LMDeploy's `file`, which cannot be imported without a GPU."""
    for node in ast.walk(ast.parse((HOME / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return eval(compile(ast.Expression(node.value), file, "eval"))  # noqa: S307
    raise SystemExit(f"{file} has no {name}")


def main() -> int:
    """Write arguments-<version>.json and models-<version>.json into the folder on the command line."""
    SubCliServe.add_parsers()
    parser = SubCliServe.subparsers.choices["api_server"]
    actions = [action for action in parser._actions if action.option_strings and action.dest != "help"]
    folder, version = Path(sys.argv[1]), lmdeploy.__version__
    options = [describe(action, TYPES, CHOICES) for action in actions]
    write(folder, version, "parser of `lmdeploy serve api_server`, by tools/lmdeploy_tables.py", options)
    modules = runpy.run_path(str(HOME / "pytorch/models/module_map.py"))
    turbomind = runpy.run_path(str(HOME / "turbomind/supported_models.py"))
    models = {
        "source": "turbomind/supported_models.py, turbomind/converter.py, pytorch/models/module_map.py, "
        "pytorch/config.py and archs.py, by tools/lmdeploy_tables.py",
        "turbomind": {
            "architectures": sorted(turbomind["SUPPORTED_ARCHS"]),
            "quantisations": sorted(constant("turbomind/converter.py", "_SUPPORTED_GROUP_SIZES")),
        },
        "pytorch": {
            "architectures": sorted(modules["MODULE_MAP"]),
            "quantisations": pytorch_methods(),
        },
        "vision": sorted(constant("archs.py", "supported_archs")),
    }
    path = folder / f"models-{version}.json"
    path.write_text(json.dumps(models, indent=1) + "\n", encoding="utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
