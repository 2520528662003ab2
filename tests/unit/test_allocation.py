"""`--nodes`: a plan and a job for hosts that a scheduler allocates, from an inventory without hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.control.cli.app import app
from typer.testing import CliRunner, Result

pytestmark = pytest.mark.usefixtures("no_hub")

SETTINGS = "[all:vars]\ngpus=8\ngpu=H100-80G\nmodel=deepseek-ai/DeepSeek-R1\n"


def deploy(tmp_path: Path, verb: str, *words: str, text: str = SETTINGS) -> Result:
    inventory = tmp_path / "llm.ini"
    inventory.write_text(text)
    return CliRunner().invoke(app, [verb, str(inventory), *words])


def test_a_plan_has_the_nodes_and_no_commands(tmp_path: Path) -> None:
    output = deploy(tmp_path, "plan", "--nodes", "2").stdout
    assert "16 ranks of a GPU on 2 nodes" in output
    assert "docker run" not in output


@pytest.mark.parametrize("target", ["slurm", "kubernetes"])
def test_the_files_name_no_host(tmp_path: Path, target: str) -> None:
    result = deploy(tmp_path, "render", "--to", target, "--nodes", "2")
    assert result.exit_code == 0, result.exception
    assert "192.0.2." not in result.stdout and "node1" not in result.stdout
    assert "--nodes=2" in result.stdout or "size: 2" in result.stdout


def test_models_are_listed_for_the_nodes(tmp_path: Path) -> None:
    text = SETTINGS.replace("model=deepseek-ai/DeepSeek-R1\n", "")
    output = deploy(tmp_path, "models", "--nodes", "2", "--task", "rerank", text=text).stdout
    assert output.startswith("2 nodes × 8 H100-80G")


@pytest.mark.parametrize(
    ("verb", "words", "text", "what"),
    [
        ("plan", ("--nodes", "2"), "[head]\nn1 address=192.0.2.9\n" + SETTINGS, "lists no hosts"),
        ("plan", ("--nodes", "2"), "[gpu]\nn1 address=192.0.2.1\n" + SETTINGS, "lists no hosts"),
        ("plan", ("--nodes", "2", "--probe"), SETTINGS, "exclude each other"),
        ("render", ("--nodes", "2", "--to", "compose"), SETTINGS, "--to slurm"),
    ],
)
def test_where_it_means_nothing_it_is_refused(
    tmp_path: Path, verb: str, words: tuple[str, ...], text: str, what: str
) -> None:
    error = deploy(tmp_path, verb, *words, text=text).exception
    assert isinstance(error, InputError) and what in error.what
