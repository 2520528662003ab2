"""What LMDeploy of an image can do, and what it makes of a command (probe_tasks.py, probing.py).

The models and quantisations of its two back ends are in files of its own, which are read without importing
the packages that they are in, as these may need a GPU.
"""

from __future__ import annotations

import ast
import runpy
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import probe_tasks

# Words right before those that the engine's own parser reads; a script may come before them.
BEFORE = ("serve", "api_server")
TYPES = {"int": "int", "float": "float", "loads": "json"}
# Methods that published checkpoints name in config.json.
METHODS = ("awq", "bitsandbytes", "compressed-tensors", "fp8", "gptq", "mxfp4", "smooth_quant")


def main(request: Mapping[str, Any]) -> None:
    """Answers a request."""
    parts = {"version": partial(probe_tasks.version, "lmdeploy"), "options": options, "support": support}
    probe_tasks.answer(request, engine="lmdeploy", parts=parts, before=BEFORE, check=check)


def options() -> list[dict[str, Any]]:
    """The options of its parser; some values are text there, and LMDeploy checks them after it."""
    from lmdeploy.cli.serve import SubCliServe
    from lmdeploy.messages import QuantPolicy
    from lmdeploy.serve.parsers import reasoning_parser as reasoning
    from lmdeploy.serve.parsers.tool_parser import ToolParserManager

    policies = {name for policy in QuantPolicy for name in (str(policy.value), policy.name.lower())}
    choices = {
        "tool_call_parser": [*ToolParserManager.module_dict],
        "reasoning_parser": [
            *{*reasoning.ReasoningParserManager.module_dict, *reasoning.LEGACY_REASONING_PARSER_NAMES}
        ],
        "quant_policy": [*policies | {"fp8_e4m3"}],
    }
    SubCliServe.add_parsers()
    actions = SubCliServe.subparsers.choices["api_server"]._actions
    return [
        probe_tasks.option(action, TYPES, choices)
        for action in actions
        if action.option_strings and action.dest != "help"
    ]


def support() -> probe_tasks.Tables:
    """The tables of headfirst.decide.engines.lmdeploy.support."""
    home = probe_tasks.home("lmdeploy")
    return probe_tasks.Tables(
        {
            "turbomind": lambda: {
                "architectures": sorted(
                    runpy.run_path(str(home / "turbomind/supported_models.py"))["SUPPORTED_ARCHS"]
                ),
                "quantisations": sorted(_constant("turbomind/converter.py", "_SUPPORTED_GROUP_SIZES")),
            },
            "pytorch": lambda: {
                "architectures": sorted(
                    runpy.run_path(str(home / "pytorch/models/module_map.py"))["MODULE_MAP"]
                ),
                "quantisations": [method for method in METHODS if _pytorch_reads(method)],
            },
            "vision": lambda: sorted(_constant("archs.py", "supported_archs")),
        }
    )


def _pytorch_reads(method: str) -> bool:
    """Whether the PyTorch engine reads this method from config.json."""
    from lmdeploy.pytorch.config import QuantizationConfig

    try:
        QuantizationConfig.from_config(SimpleNamespace(quantization_config={"quant_method": method}))
    except TypeError:  # "Unsupported quant method"
        return False
    except (KeyError, ValueError):  # the method is read further, and this empty configuration lacks the rest
        return True
    return True


def _constant(file: str, name: str) -> Any:
    """The value assigned to `name` in LMDeploy's `file`, which cannot be imported without a GPU."""
    text = (probe_tasks.home("lmdeploy") / file).read_text(encoding="utf-8")
    for value in probe_tasks.assigned(ast.parse(text), name):
        return eval(compile(ast.Expression(value), file, "eval"))  # noqa: S307
    raise LookupError(f"{file} has no {name}")


def check(words: list[str]) -> None:
    """Reads a command as at a start, up to the configuration of its back end and of the model."""
    configure(*read(words))


def configure(arguments: Any, server: Mapping[str, Any]) -> None:
    """Makes the configurations that LMDeploy makes before it uses a GPU."""
    from lmdeploy.archs import get_task
    from lmdeploy.serve.parsers import validate_parser_names

    config = server["backend_config"]
    validate_parser_names(arguments.reasoning_parser, arguments.tool_call_parser)
    get_task(server["backend"], arguments.model_path, arguments.trust_remote_code, config)
    (_configure_pytorch if server["backend"] == "pytorch" else _configure_turbomind)(arguments, config)


def read(words: list[str]) -> tuple[Any, dict[str, Any]]:
    """The arguments, and what LMDeploy would start its server with."""
    from lmdeploy.cli.cli import CLI
    from lmdeploy.cli.serve import SubCliServe

    server: dict[str, Any] = {}
    for module, function in (("api_server", "serve"), ("launch_server", "launch_server")):
        there = import_module(f"lmdeploy.serve.openai.{module}")
        setattr(there, function, lambda *_words, **options: server.update(options))
    if not hasattr(SubCliServe, "subparsers") or "api_server" not in SubCliServe.subparsers.choices:
        CLI.add_parsers()
        SubCliServe.add_parsers()
    arguments = CLI.parser.parse_args(["serve", "api_server", *words])
    arguments.run(arguments)
    return arguments, server


def _configure_turbomind(arguments: Any, config: Any) -> None:
    """The ranks and the reader of the checkpoint."""
    from lmdeploy.turbomind import converter, turbomind

    turbomind.update_parallel_config(config)
    converter.get_tm_config(arguments.model_path, config, trust_remote_code=arguments.trust_remote_code)


def _configure_pytorch(arguments: Any, config: Any) -> None:
    """Configurations of the PyTorch engine and of its model, and its check of the environment."""
    from lmdeploy.pytorch.config import ModelConfig
    from lmdeploy.pytorch.engine.config_builder import ConfigBuilder
    from lmdeploy.pytorch.models import patch

    config = ConfigBuilder.update_engine_config(config)
    model = ModelConfig.from_pretrained(
        arguments.model_path,
        trust_remote_code=arguments.trust_remote_code,
        dtype=config.dtype,
        hf_overrides=config.hf_overrides,
        dist_config=ConfigBuilder.build_dist_config(config),
        model_format=config.model_format,
        device_type=config.device_type,
        block_size=ConfigBuilder.build_cache_config(config).block_size,
    )
    model.check_env_func(config.device_type)
    patch._get_model_class(model.hf_config, patch._get_module_map())
