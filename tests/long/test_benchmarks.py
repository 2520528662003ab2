"""The converter's benchmark runs with what the dev group has, without torch, and finds the same bytes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "convert.py"


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch takes numpy's place")
def test_the_benchmark_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--gib", "0.02", "--shards", "1", "--rounds", "1"]
    done = subprocess.run([*command, "--folder", str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "reference in numpy" in done.stdout
    assert "the files are the same bytes" in done.stdout
