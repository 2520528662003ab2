"""`deploy plan -l`: what is printed is of these hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.control.cli.app import app
from typer.testing import CliRunner, Result

pytestmark = pytest.mark.usefixtures("no_hub")

H20X2 = Path(__file__).resolve().parents[2] / "inventories/h20x2.ini"


def plan(*words: str) -> Result:
    return CliRunner().invoke(app, ["plan", str(H20X2), *words], env={"COLUMNS": "200"})


def test_ranks_of_other_hosts_are_left_out() -> None:
    whole = plan("--commands").output
    assert "rank 0 of DeepSeek-R1 on node01" in whole and "rank 1 of DeepSeek-R1 on node02" in whole
    part = plan("-l", "node02", "--commands").output
    assert "rank 1 of DeepSeek-R1 on node02\ndocker run" in part
    assert "on node01" not in part and "chat page on" not in part
    assert "Memory:" in part


def test_a_limit_without_hosts_is_refused() -> None:
    error = plan("-l", "nobody").exception
    assert isinstance(error, InputError) and "--limit" in str(error)


@pytest.mark.parametrize("option", ["--json", "--svg"])
def test_json_and_drawing_are_of_all_hosts(option: str) -> None:
    error = plan("-l", "node02", option).exception
    assert isinstance(error, InputError) and option in str(error)
