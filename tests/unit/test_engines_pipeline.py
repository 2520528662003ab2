"""How each engine divides the layers into pipeline stages: as data, and against the engine's own function."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from headfirst.common.errors import InputError
from headfirst.decide import engines

SIZES = [(layers, stages) for stages in range(1, 9) for layers in (8, 28, 61, 62, 80, 94)]
# The engine, the Python that has it, the module of its get_pp_indices, its variable.
OWN = [
    ("sglang", "SGLANG_PYTHON", "sglang.srt.distributed.utils", "SGLANG_PP_LAYER_PARTITION"),
    ("vllm", "VLLM_PYTHON", "vllm.distributed.utils", "VLLM_PP_LAYER_PARTITION"),
]


def divided(engine: str, layers: int, stages: int, environment: dict[str, str] | None = None) -> list[range]:
    found = engines.get(engine, None)
    return [found.pipeline_layers(stage, stages, layers, environment or {}) for stage in range(stages)]


@pytest.mark.parametrize(
    ("engine", "layers", "counts"),
    [
        ("sglang", 61, [30, 31]),
        ("vllm", 61, [31, 30]),
        ("sglang", 61, [20, 20, 21]),
        ("vllm", 61, [20, 21, 20]),
        ("sglang", 30, [7, 7, 8, 8]),
        ("vllm", 30, [7, 8, 8, 7]),
        ("vllm", 31, [8, 8, 8, 7]),
        ("sglang", 80, [20] * 4),
        ("lmdeploy", 80, [80]),
    ],
)
def test_layers_by_stage(engine: str, layers: int, counts: list[int]) -> None:
    found = divided(engine, layers, len(counts))
    assert [len(span) for span in found] == counts
    assert [layer for span in found for layer in span] == list(range(layers))


@pytest.mark.parametrize(("engine", "variable"), [(name, variable) for name, _, _, variable in OWN])
def test_the_users_partition(engine: str, variable: str) -> None:
    assert divided(engine, 61, 2, {variable: "20,41"}) == [range(20), range(20, 61)]
    for wrong in ("20,40", "61", "20,20,21", "a,b", "", "-1,62"):
        with pytest.raises(InputError, match=f"{variable}={wrong} does not divide 61 layers into 2 stages"):
            divided(engine, 61, 2, {variable: wrong})


@pytest.mark.parametrize(("engine", "python", "module", "variable"), OWN)
def test_the_engines_own_function_divides_likewise(
    engine: str, python: str, module: str, variable: str
) -> None:
    if python not in os.environ:
        pytest.skip(f"{python} names no Python with {engine}")
    program = f"""
import json, os
from {module} import get_pp_indices
def all(layers, stages):
    return [get_pp_indices(layers, stage, stages) for stage in range(stages)]
found = [all(layers, stages) for layers, stages in {SIZES}]
os.environ["{variable}"] = "20,41"
print(json.dumps([*found, all(61, 2)]))
"""
    result = subprocess.run([os.environ[python], "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    *own, partition = json.loads(result.stdout.splitlines()[-1])
    ours = [[[span.start, span.stop] for span in divided(engine, *size)] for size in SIZES]
    assert own == ours
    assert partition == [[0, 20], [20, 61]]
