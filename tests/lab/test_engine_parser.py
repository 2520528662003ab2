"""The parser inside the engine's image reads every command that a plan can have."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from headfirst.decide import engines
from readme_lab import Service, on_node
from sglang_launches import LAUNCHES
from sglang_parser import parsed, program_arguments

pytestmark = pytest.mark.lab


def test_the_parser_in_the_image_reads_every_command_as_it_is_meant(service: Service) -> None:
    engine = engines.get("sglang")
    commands = [engine.launch(replace(request, config_file=None)).command for request, _ in LAUNCHES]
    words = ["docker", "run", "--rm", "--network", "none", "--env", "SGLANG_USE_CPU_ENGINE=1"]
    words += ["--env", "TORCHDYNAMO_DISABLE=1", engine.default_image("cpu"), "python3"]
    said = on_node("node1", shlex.join([*words, *program_arguments(commands)]))
    for found, (_, values) in zip(parsed(said), LAUNCHES, strict=True):
        assert values.items() <= found.items()
