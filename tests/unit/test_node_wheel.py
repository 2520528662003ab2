"""The nodes' wheel: what is in it, that it installs and runs, and that its version follows its content."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from headfirst.run import node_wheel
from headfirst.run.node_wheel import build_node_wheel


def test_equal_content_gives_an_equal_file(tmp_path: Path) -> None:
    one, two = build_node_wheel(tmp_path / "one"), build_node_wheel(tmp_path / "two")
    assert one.name == two.name
    assert one.read_bytes() == two.read_bytes()


def test_other_content_gives_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build_node_wheel(tmp_path)
    sources = node_wheel._sources()
    monkeypatch.setattr(node_wheel, "_sources", lambda: sources | {"headfirst/errors.py": b"# changed\n"})
    after = build_node_wheel(tmp_path)
    assert before.name != after.name


def test_it_holds_only_what_a_node_needs(tmp_path: Path) -> None:
    with zipfile.ZipFile(build_node_wheel(tmp_path)) as archive:
        folders = {name.split("/")[1] for name in archive.namelist() if name.startswith("headfirst/")}
    assert folders == {"__init__.py", "errors.py", "weights"}


def test_it_installs_and_its_command_says_its_version(tmp_path: Path) -> None:
    wheel = build_node_wheel(tmp_path)
    venv.create(tmp_path / "venv", system_site_packages=False, with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            str(wheel),
        ],
        check=True,
    )
    # The dependencies come from this interpreter: the test needs no index.
    site = next(path for path in sys.path if path.endswith("site-packages"))
    command = tmp_path / "venv" / "bin" / "headfirst-weights"
    said = subprocess.run(
        [command, "--version"], env={"PYTHONPATH": site}, capture_output=True, text=True, check=True
    )
    assert said.stdout.split()[0] in wheel.name
