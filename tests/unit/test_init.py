"""`deploy init` writes an inventory that `deploy plan` takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.control.cli.app import app
from headfirst.control.inventory.inventory import load
from typer.testing import CliRunner

FLAGS = ["--host", "192.0.2.11", "--host", "big=192.0.2.12", "--user", "ubuntu", "--gpus", "8",
         "--gpu", "A100-80G", "--nic", "eth0",
         "--model", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B"]  # fmt: skip


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_flags_alone_are_enough(tmp_path: Path) -> None:
    path = tmp_path / "mine.ini"
    result = CliRunner().invoke(app, ["init", str(path), *FLAGS])
    assert result.exit_code == 0, result.output
    cluster = load([path])
    assert [(host.name, host.address) for host in cluster.ranks] == [
        ("node1", "192.0.2.11"),
        ("big", "192.0.2.12"),
    ]
    assert (cluster.head.gpus, cluster.head.gpu, cluster.head.nic) == (8, "A100-80G", "eth0")
    assert cluster.head.hca is None
    assert cluster.services[0].settings.model == "deepseek-ai/DeepSeek-R1-Distill-Llama-70B"
    assert cluster.head.login.user == "ubuntu"


def test_a_file_is_not_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "mine.ini"
    path.write_text("precious")
    result = CliRunner().invoke(app, ["init", str(path), *FLAGS])
    assert isinstance(result.exception, InputError)
    assert path.read_text() == "precious"
    assert CliRunner().invoke(app, ["init", str(path), *FLAGS, "--force"]).exit_code == 0
    assert "precious" not in path.read_text()


def test_without_a_terminal_a_missing_answer_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["init", str(tmp_path / "mine.ini"), "--host", "192.0.2.11"])
    assert isinstance(result.exception, InputError)
    assert "--user is missing" in result.exception.what
