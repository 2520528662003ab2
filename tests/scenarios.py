"""Runs a molecule scenario as its user does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from readme_lab import ROOT

# Roles that the lab's own `deploy up` runs in tests/lab and tests/browser, other modes and runtimes,
# and closed networks.
LONG = (
    "bundle",
    "comm_check",
    "engine",
    "engine_image",
    "host_tuning",
    "monitoring",
    "node_tools",
    "open_webui",
    "podman_engine",
    "router",
    "weights",
    "weights_in_place",
)


def molecule(scenario: str, *options: str) -> None:
    """From create to destroy; fails with the end of its output."""
    programs = Path(sys.executable).parent  # molecule calls ansible-config by its name
    command = [str(programs / "molecule"), "test", "-s", scenario, *options]
    env = os.environ | {"MOLECULE_GLOB": "molecule/*/molecule.yml", "ANSIBLE_NOCOLOR": "1"}
    env["PATH"] = f"{programs}{os.pathsep}{env['PATH']}"
    done = subprocess.run(
        command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:]
