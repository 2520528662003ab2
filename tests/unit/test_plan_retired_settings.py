"""A setting that does nothing any more is accepted for a release, and `deploy plan` names the line."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.control.cli.app import app
from headfirst.control.deployment.prepare import prepare
from typer.testing import CliRunner

pytestmark = pytest.mark.usefixtures("no_hub")

INVENTORY = """\
[head]
n1 ansible_host=192.0.2.1
[workers]
n2 ansible_host=192.0.2.2
[all:vars]
gpus=8
gpu=H100-80G
nic=eth0
hca=none
model=Qwen/Qwen3-32B
weights_encrypt=true
"""
NOTE = (
    "{where}: weights_carrier=rdma is not used: the weights travel over TCP. "
    "Remove the line; a later release refuses it."
)


def test_the_carrier_rdma_is_noted_once_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.ini"
    path.write_text(f"{INVENTORY}weights_carrier=rdma\n")
    result = CliRunner().invoke(app, ["plan", str(path)])
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == ["note: " + NOTE.format(where=f"{path}:12")]


def test_an_extra_variable_is_noted_as_one(tmp_path: Path) -> None:
    path = tmp_path / "x.ini"
    path.write_text(INVENTORY)
    [note] = prepare([path], ["weights_carrier=rdma"], probe=False).plan.notes
    assert note == NOTE.format(where="extra variables (-e)")


@pytest.mark.parametrize("line", ["", "weights_carrier=tcp\n"])
def test_the_carrier_tcp_is_not_noted(line: str, tmp_path: Path) -> None:
    path = tmp_path / "x.ini"
    path.write_text(INVENTORY + line)
    assert not prepare([path], [], probe=False).plan.notes
