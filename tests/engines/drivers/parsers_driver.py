"""The names of parsers that an engine does not have, or cannot load.

The question is {"engine": …, "names": {"--tool-call-parser": […], "--reasoning-parser": […]}}; the answer
is a list of lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import planned_gpu


def sglang() -> Mapping[str, Callable[[str], Any]]:
    """The class of a name, by option; KeyError where there is none."""
    from sglang.srt.function_call.function_call_parser import FunctionCallParser
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    return {
        "--tool-call-parser": FunctionCallParser.ToolCallParserEnum.__getitem__,
        "--reasoning-parser": ReasoningParser.DetectorMap.__getitem__,
    }


def vllm() -> Mapping[str, Callable[[str], Any]]:
    """The class of a name, by option; KeyError where there is none."""
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    return {
        "--tool-call-parser": ToolParserManager.get_tool_parser,
        "--reasoning-parser": ReasoningParserManager.get_reasoning_parser,
    }


def lmdeploy() -> Mapping[str, Callable[[str], Any]]:
    """The check of a name, by option; ValueError where there is none."""
    from lmdeploy.serve.parsers import validate_parser_names

    return {
        "--tool-call-parser": lambda name: validate_parser_names(None, name),
        "--reasoning-parser": validate_parser_names,
    }


def main() -> None:
    """Answers one file of questions."""
    question = planned_gpu.question()
    registries = {"sglang": sglang, "vllm": vllm, "lmdeploy": lmdeploy}[question["engine"]]()
    lines = []
    for option, names in question["names"].items():
        for name in names:
            try:
                registries[option](name)
            except Exception as error:  # whatever a parser's module raises
                lines.append(f"{option} {name}: {type(error).__name__}: {error}")
    planned_gpu.write(lines)


if __name__ == "__main__":
    main()
