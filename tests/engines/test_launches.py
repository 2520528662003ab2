"""The engines' own parsers read launches beside those of plans: tasks, adapters, ranks of other nodes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace

import engine_sites
from headfirst.decide import engines
from headfirst.decide.engines.base import LaunchRequest, Task
from sglang_launches import LAUNCHES
from sglang_parser import parsed, program_arguments
from test_engines_vllm import DATA, DISTILL, LAB, LLAMA, worker

_PARSE = """
import json, sys
from importlib import import_module
for module in ("common", "launchers"):
    try:
        make = import_module(f"vllm.entrypoints.{module}.cli_args").make_arg_parser
    except ModuleNotFoundError:
        continue
    break
from vllm.utils.argparse_utils import FlexibleArgumentParser
for argv in json.load(sys.stdin):
    parser = FlexibleArgumentParser(prog="vllm serve")
    serve = make(parser.add_subparsers().add_parser("serve"))
    print(parser.parse_args(argv).model_tag)
"""


def commands(engine: str, requests: Sequence[LaunchRequest]) -> list[list[str]]:
    found = engines.get(engine)
    return [found.launch(replace(request, config_file=None)).command for request in requests]


def parser(engine: str, arguments: Sequence[str], question: str = "") -> str:
    done = subprocess.run(
        [engine_sites.python(), "-s", "-P", *arguments],
        env=engine_sites.environment(engine) | {"SGLANG_USE_CPU_ENGINE": "1"},
        input=question, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout


def test_sglang_reads_every_launch_as_it_is_meant() -> None:
    words = commands("sglang", [request for request, _ in LAUNCHES])
    values = parsed(parser("sglang", program_arguments(words)))
    for value, (_, expected) in zip(values, LAUNCHES, strict=True):
        assert expected.items() <= value.items()


def test_vllm_reads_every_launch() -> None:
    adapters = replace(DISTILL, adapters={"a": "/a", "b": "/b"})
    requests = [DISTILL, adapters, LLAMA, worker(LLAMA), LAB, worker(LAB), DATA, worker(DATA)]
    tasks: tuple[Task, ...] = ("embedding", "rerank", "reward")
    requests += [replace(DISTILL, task=task) for task in tasks]
    words = commands("vllm", requests)
    models = parser("vllm", ["-c", _PARSE], json.dumps(words)).split()
    assert models[-len(requests) :] == [request.model_dir for request in requests]
