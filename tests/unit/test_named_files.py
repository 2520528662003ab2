"""Files that engine_args names: a note where no mounted folder has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import catalogued, read

MODEL = "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"
TEMPLATE = "engine_args='--chat-template /templates/r1.jinja'"


def notes(folder: Path, lines: str) -> list[str]:
    host = "[head]\nn0 ansible_host=192.0.2.1 gpus=1 gpu=A100-80G\n"
    plan = catalogued(read(folder, f"{host}[all:vars]\nmodel={MODEL}\n{lines}\n"))
    return [note for note in plan.services[0].notes if "engine_args" in note]


@pytest.mark.parametrize("line", [TEMPLATE, TEMPLATE.replace(" /", "=/"), f"engine=vllm\n{TEMPLATE}"])
def test_a_file_that_no_folder_has(tmp_path: Path, line: str) -> None:
    [note] = notes(tmp_path, line)
    assert "/templates/r1.jinja" in note
    assert "engine_volumes" in note


@pytest.mark.parametrize(
    "line",
    [
        f"{TEMPLATE}\nengine_volumes=/data/templates:/templates:ro",
        "engine_args='--chat-template llama-4'",
        "engine_args='--tokenizer-path /var/lib/headfirst/models/DeepSeek-R1-Distill-Llama-8B'",
        """engine_args=--json-model-override-args '{"a":"/b"}'""",
        "",
    ],
)
def test_what_is_mounted_or_no_file(tmp_path: Path, line: str) -> None:
    assert notes(tmp_path, line) == []
