"""The reference of the converter's benchmark; tests/long/test_benchmarks.py runs the benchmark."""

from __future__ import annotations

import importlib.util
from pathlib import Path

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
