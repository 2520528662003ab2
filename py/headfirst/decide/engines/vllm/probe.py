"""What vLLM of an image can do, and what it makes of a command (probe_tasks.py, probing.py).

Its options, architectures and quantisations are those of its own parser and registries. Model files import
what the image has; an architecture whose file cannot be imported is one of "unknown_abilities".
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import os
import re
import sys
from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any

import probe_tasks

# The word right before those that the engine's own parser reads; a script may come before it.
BEFORE = ("serve",)
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
_AUTO = "transformers.models.auto.modeling_auto"


def main(request: Mapping[str, Any]) -> None:
    """Answers a request."""
    parts = {"version": partial(probe_tasks.version, "vllm"), "options": options, "support": support}
    probe_tasks.answer(request, engine="vllm", parts=parts, before=BEFORE, check=check)


def _for_any_machine() -> None:
    """A build for GPUs describes itself on a machine without one as it does beside them."""
    if probe_tasks.lacks_gpu():
        os.environ["VLLM_TARGET_DEVICE"] = "cpu"


@cache
def make_parser() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """The parser of `vllm`, and that of `vllm serve` in it."""
    parser = import_module("vllm.utils.argparse_utils").FlexibleArgumentParser(prog="vllm")
    serve = parser.add_subparsers().add_parser("serve")
    return parser, of_command_line("make_arg_parser")(serve)


def of_command_line(name: str) -> Any:
    """A function of vLLM's command line; its module has moved between releases."""
    for module in ("common.cli_args", "launchers.cli_args", "launchers.launcher", "openai.cli_args"):
        try:
            return getattr(import_module(f"vllm.entrypoints.{module}"), name)
        except (ModuleNotFoundError, AttributeError):
            continue
    raise LookupError(f"this vLLM has {name} in another module")


def options() -> list[dict[str, Any]]:
    """The options of its parser."""
    _for_any_machine()
    _, serve = make_parser()
    return [describe(action) for action in serve._actions if action.option_strings and action.dest != "help"]


def describe(action: argparse.Action) -> dict[str, Any]:
    """One option: its spellings and what it takes."""
    option: dict[str, Any] = {"flags": list(action.option_strings), "dest": action.dest}
    if isinstance(action, argparse.BooleanOptionalAction):
        option |= {"type": "flag", "negative": negatives(action)}
        option["flags"] = list(dict.fromkeys([*action.option_strings, *option["negative"]]))
    elif action.nargs == 0:
        option["type"] = "flag"
    else:
        option |= value(action)
    return option


def negatives(action: argparse.BooleanOptionalAction) -> list[str]:
    """The spellings that store False."""
    known = getattr(action, "negative_option_strings", None)
    return sorted(known if known is not None else (f for f in action.option_strings if f.startswith("--no-")))


def unwrap(function: Any) -> tuple[Any, bool]:
    """The innermost converter, and whether one around it takes "None"."""
    optional = False
    while inspect.isfunction(function) and function.__name__ in ("_optional_type", "_parse_type"):
        optional |= function.__name__ == "_optional_type"
        function = inspect.getclosurevars(function).nonlocals["return_type"]
    return function, optional


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


def parsed(words: list[str]) -> Any:
    """The arguments of a command, after the checks of `vllm serve`."""
    parser, _ = make_parser()
    arguments = parser.parse_args(["serve", *words])
    arguments.model = arguments.model_tag or arguments.model  # as `vllm serve` does
    for name in ("validate_parsed_serve_args", "validate_api_server_args"):
        try:
            validate = of_command_line(name)
        except LookupError:  # of another version
            continue
        validate(arguments)
    return arguments


def read(words: list[str]) -> tuple[Any, Any]:
    """The arguments of a command and vLLM's whole configuration, after all checks of them."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext

    arguments = parsed(words)
    config = AsyncEngineArgs.from_cli_args(arguments).create_engine_config(
        UsageContext.OPENAI_API_SERVER, headless=arguments.headless
    )
    return arguments, config


def check(words: list[str]) -> None:
    """Reads a command as at a start, with its adapters."""
    if probe_tasks.lacks_gpu():
        _for_any_machine()
        parsed(words)
        raise probe_tasks.UnaskedError("no GPU is visible: vLLM read the arguments alone")
    _take_adapters(*read(words))


def _take_adapters(arguments: Any, config: Any) -> None:
    """What a worker checks of an adapter before it reads the weights (lora/worker_manager.py)."""
    if not config.lora_config or not arguments.lora_modules:
        return
    from vllm.lora.peft_helper import PEFTHelper

    for adapter in arguments.lora_modules:
        described = PEFTHelper.from_local_dir(adapter.path, config.model_config.max_model_len)
        described.validate_legal(config.lora_config)


def support() -> probe_tasks.Tables:
    """The tables of headfirst.decide.engines.vllm.support."""
    _for_any_machine()
    abilities, failed = architectures()
    return probe_tasks.Tables(
        {
            "quantizations": quantizations,
            "deprecated_quantizations": deprecated_quantizations,
            "without_float16": without_float16,
            "suffixes": suffixes,
            "unknown_abilities": lambda: sorted(failed),
            "transformers": lambda: of_transformers({*abilities, *failed}),
            "architectures": lambda: dict(sorted(abilities.items())),
        }
    )


def architectures() -> tuple[dict[str, list[str]], list[str]]:
    """Architecture -> what its class can do; and the architectures whose class cannot be loaded here."""
    from vllm.model_executor.models import registry
    from vllm.model_executor.models.interfaces import supports_lora

    abilities, failed = {}, []
    others = {*registry._SPECULATIVE_DECODING_MODELS}
    others.update(getattr(registry, "_TRANSFORMERS_BACKEND_MODELS", ()))
    for name, model in registry.ModelRegistry.models.items():
        if name in others:
            continue
        try:
            model_class = model.load_model_cls()
            info = registry._ModelInfo.from_model_cls(model_class)
        except Exception as error:  # whatever a model file raises
            failed.append(name)
            print(f"{name}: {error}", file=sys.stderr)
            continue
        can = {
            "generate": info.is_text_generation_model,
            "pooling": info.is_pooling_model,
            "multimodal": info.supports_multimodal,
            "pp": info.supports_pp,
            "lora": supports_lora(model_class),
            "lora_ends": bool(getattr(model_class, "embedding_modules", None)),  # embedding and head, too
            # one matrix for gate and up
            "lora_fused_experts": getattr(model_class, "is_3d_moe_weight", False),
            "hybrid": info.is_hybrid,
        }
        abilities[name] = [word for word, holds in can.items() if holds]
    return abilities, failed


def of_transformers(known: set[str]) -> list[str]:
    """Architectures outside the registry that vLLM serves with transformers' own classes."""
    transformers, auto = import_module("transformers"), import_module(_AUTO)
    names: set[str] = set()
    for mapping in (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES):
        for entry in mapping.values():
            names |= {entry} if isinstance(entry, str) else set(entry)
    usable = []
    for name in sorted(names - known):
        try:
            usable += [name] if getattr(transformers, name).is_backend_compatible() else []
        except Exception as error:  # whatever a model file raises
            print(f"{name}: {error}", file=sys.stderr)
    return usable


def quantizations() -> dict[str, int]:
    """Method of quantisation -> the lowest compute capability, times ten."""
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS, get_quantization_config

    methods = sorted(QUANTIZATION_METHODS)
    return {name: int(get_quantization_config(name).get_min_capability()) for name in methods}


def deprecated_quantizations() -> list[str]:
    """Methods that vLLM takes only where they are allowed."""
    from vllm.model_executor.layers.quantization import DEPRECATED_QUANTIZATION_METHODS

    return sorted(DEPRECATED_QUANTIZATION_METHODS)


def without_float16() -> list[str]:
    """Architectures that are not computed in FP16, by transformers' names for their model types."""
    from vllm.config.model import _FLOAT16_NOT_SUPPORTED_MODELS

    auto = import_module(_AUTO)
    mappings = [names for name, names in vars(auto).items() if re.fullmatch("MODEL_.*MAPPING_NAMES", name)]
    entries = [names[kind] for names in mappings for kind in _FLOAT16_NOT_SUPPORTED_MODELS if kind in names]
    return sorted({name for entry in entries for name in ([entry] if isinstance(entry, str) else entry)})


def suffixes() -> list[str]:
    """Endings of architectures, in the order in which they are tried."""
    from vllm.config.model import iter_architecture_defaults

    return [suffix for suffix, _ in iter_architecture_defaults()]
