"""`headfirst-weights` where Headfirst was installed without the extra that it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[2]

WITHOUT = """
import sys
from importlib.metadata import EntryPoint

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
sys.argv = ["headfirst-weights", "--version"]
EntryPoint("headfirst-weights", {entry!r}, "console_scripts").load()()
"""


def run_without(*missing: str) -> subprocess.CompletedProcess[str]:
    """The command that `pip install .` makes, in an environment that lacks these packages."""
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["headfirst-weights"]
    code = WITHOUT.format(missing=missing, entry=entry)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_extra_to_install_is_named() -> None:
    done = run_without("numpy", "numba", "xxhash", "blake3", "huggingface_hub", "modelscope_hub")
    assert done.returncode == 3 and done.stdout == ""
    assert "Traceback" not in done.stderr and "pip install 'headfirst[weights]'" in done.stderr


def test_with_the_extra_it_runs() -> None:
    done = run_without()
    assert done.returncode == 0 and done.stdout[:1].isdigit()


def test_a_part_of_headfirst_that_is_missing_is_a_defect() -> None:
    done = run_without("headfirst.node.weights.commands")
    assert done.returncode == 1 and "Traceback" in done.stderr
