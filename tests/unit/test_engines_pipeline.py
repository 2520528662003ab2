"""How each engine divides layers into pipeline stages; tests/engines/test_pipeline.py asks the engines."""

from __future__ import annotations

import pytest
from headfirst.common.errors import InputError
from headfirst.decide import engines

VARIABLES = {"sglang": "SGLANG_PP_LAYER_PARTITION", "vllm": "VLLM_PP_LAYER_PARTITION"}


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


@pytest.mark.parametrize(("engine", "variable"), VARIABLES.items())
def test_the_users_partition(engine: str, variable: str) -> None:
    assert divided(engine, 61, 2, {variable: "20,41"}) == [range(20), range(20, 61)]
    for wrong in ("20,40", "61", "20,20,21", "a,b", "", "-1,62"):
        with pytest.raises(InputError, match=f"{variable}={wrong} does not divide 61 layers into 2 stages"):
            divided(engine, 61, 2, {variable: wrong})
