"""Runs a molecule scenario as its user does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from readme_lab import ROOT

# A mode of the role `weights` that its own scenario leaves out, the other runtime, closed networks, and two
# roles that tests/lab/test_services.py and tests/browser/test_monitoring.py run.
LONG = ("weights_in_place", "podman_engine", "bundle", "monitoring", "router")


def molecule(scenario: str, *options: str) -> None:
    """From create to destroy; fails with the end of its output."""
    command = [str(Path(sys.executable).parent / "molecule"), "test", "-s", scenario, *options]
    env = os.environ | {"MOLECULE_GLOB": "molecule/*/molecule.yml", "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:]
