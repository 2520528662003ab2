"""Every molecule scenario, from create to destroy; the lab's tests go on with the service of `cluster`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from readme_lab import ROOT

pytestmark = pytest.mark.lab
SCENARIOS = sorted(path.parent.name for path in ROOT.glob("molecule/*/molecule.yml"))


def molecule(scenario: str, *options: str) -> None:
    command = [str(Path(sys.executable).parent / "molecule"), "test", "-s", scenario, *options]
    env = os.environ | {"MOLECULE_GLOB": "molecule/*/molecule.yml", "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "cluster"])
def test_role(scenario: str) -> None:
    molecule(scenario)


def test_cluster(readme_nodes: None) -> None:
    molecule("cluster", "--destroy=never")
