"""The collection's archive and ansible-core alone bring a model to two hosts, with the play of the README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bare_ansible import installed
from documented import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.slow]
MOLECULE = ROOT / "molecule"
VALUES = {
    "weights_model": "/srv/headfirst/tiny",
    "weights_source": "path",
    "weights_name": "tiny-bf16",
    "node_tools_extras": "[]",
    "vault_weights_token": "not-a-secret-here",
}


def script(path: Path, *arguments: object) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "py")}
    subprocess.run([sys.executable, str(path), *map(str, arguments)], env=environment, check=True)


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Path]:
    """Two lab nodes; their /srv/headfirst is a folder of this machine."""
    shared, inventory = tmp_path / "shared", tmp_path / "inventory" / "lab.ini"
    try:
        script(MOLECULE / "shared/lab.py", "up", "collection_alone", 2, shared, inventory)
        yield inventory
    finally:
        script(MOLECULE / "shared/lab.py", "down", "collection_alone", shared)


def test_weights_alone(inventory: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    bare = installed(tmp_path / "bare")
    script(MOLECULE / "weights/checkpoint.py", tmp_path / "shared" / "tiny")
    (tmp_path / "play.yml").write_text(bare.play("weights"))

    def run() -> str:
        done = bare.run("playbook", "--inventory", str(inventory), "play.yml", *options(VALUES), cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout

    run()
    assert re.findall(r"^node\d +: ok=\d+ +changed=(\d+)", run(), re.MULTILINE) == ["0", "0"]
    verify = "/opt/headfirst/venv/bin/headfirst-weights verify --deep /var/lib/headfirst/models/tiny-bf16"
    done = bare.run("adhoc", "all", "--inventory", str(inventory), "--become", "-a", verify)
    assert done.returncode == 0, done.stdout


def options(values: dict[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in ("-e", f"{{{name}: {value}}}")]
