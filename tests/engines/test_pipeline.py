"""Layers come to pipeline stages as the engine's own function divides them."""

from __future__ import annotations

import engine_sites
import pytest
from test_engines_pipeline import VARIABLES, divided

SIZES = [(layers, stages) for stages in range(1, 9) for layers in (8, 28, 61, 62, 80, 94)]
MODULES = {"sglang": "sglang.srt.distributed.utils", "vllm": "vllm.distributed.utils"}


@pytest.mark.parametrize("engine", MODULES)
def test_the_engine_divides_layers_likewise(engine: str) -> None:
    variables = {"module": MODULES[engine], "variable": VARIABLES[engine], "partition": "20,41"}
    answer = engine_sites.run(engine, "pipeline_driver.py", {**variables, "sizes": SIZES})
    *stages, partition = answer
    expected = [[[span.start, span.stop] for span in divided(engine, *size)] for size in SIZES]
    assert stages == expected
    assert partition == [[0, 20], [20, 61]]
