"""The converter's benchmark runs with what the dev group has, without torch, and finds the same bytes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from weights_checkpoints import load

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "convert.py"


def test_the_reference_in_numpy_gives_what_the_converter_gives(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("convert_benchmark", BENCHMARK)
    assert spec
    assert spec.loader
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    (tmp_path / "fp8").mkdir()
    (tmp_path / "reference").mkdir()
    benchmark.write_checkpoint(tmp_path / "fp8", shards=1, tensors=1, rows=benchmark.BLOCK)
    benchmark.ours(tmp_path / "fp8", tmp_path / "ours", 1)
    [shard] = (tmp_path / "fp8").glob("*.safetensors")
    benchmark.reference_in_numpy(shard, tmp_path / "reference" / shard.name, 1)
    assert load(tmp_path / "reference" / shard.name).keys() == {"layers.0.experts.0.weight"}
    assert (tmp_path / "reference" / shard.name).read_bytes() == (tmp_path / "ours" / shard.name).read_bytes()


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch takes numpy's place")
def test_the_benchmark_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--gib", "0.02", "--shards", "1", "--rounds", "1"]
    done = subprocess.run([*command, "--folder", str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "reference in numpy" in done.stdout
    assert "the files are the same bytes" in done.stdout
