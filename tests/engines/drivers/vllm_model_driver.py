"""What vLLM's model classes make of commands: all layers of one rank, on torch's meta device.

The question is that of vllm_driver.py. The stand-ins are those of tools/vllm_without_gpu.py, with which more
of a model's code runs than with those of planned_gpu. Each CPU answers a part of the commands.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import planned_gpu
import vllm_without_gpu


def made(parser: Any, command: list[str]) -> dict[str, Any]:
    """The layers of the model that have a cache."""
    import vllm_driver
    import vllm_kv

    return {"cached_layers": len(vllm_kv.layers(vllm_driver.configuration(parser, command)))}


def answered(part: Mapping[str, Any]) -> list[Any]:
    """The answers to a part of the question."""
    import vllm_arguments  # it imports vllm

    return planned_gpu.answers(part, partial(made, vllm_arguments.make_parser()))


def parts(question: Mapping[str, Any], count: int) -> Iterator[dict[str, Any]]:
    """The question in at most `count` parts; neighbours are of one model and stay together."""
    commands, environments = question["commands"], question["environments"]
    size = -(-len(commands) // count)
    for first in range(0, len(commands), size):
        these = slice(first, first + size)
        yield {"commands": commands[these], "environments": environments[these]}


def main() -> None:
    """Answers one file of questions."""
    question = planned_gpu.question()
    gpu = question["gpu"]
    name, capability = gpu["name"].removeprefix("NVIDIA "), tuple(gpu["capability"])
    vllm_without_gpu.stand_in(name, capability, gpu["memory_mib"] >> 10)
    import vllm_driver

    vllm_driver.replace_image_processors()
    count = os.cpu_count() or 1
    with multiprocessing.get_context("fork").Pool(count) as processes:
        answers = processes.map(answered, parts(question, count), chunksize=1)
    planned_gpu.write([answer for part in answers for answer in part])


if __name__ == "__main__":
    main()
