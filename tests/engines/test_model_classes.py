"""The engines' own model classes are made of the commands of all plans, on torch's meta device.

They refuse what the configuration does not: heads and blocks of a quantisation that the ranks do not divide,
schemes without a kernel, cache layouts.
"""

from __future__ import annotations

from pathlib import Path

import engine_sites
import planned_commands
import pytest
from headfirst.decide import engines
from planned_commands import Fleet

FLEETS = (
    Fleet(1, 4, "A100-80G"),
    Fleet(1, 2, "RTX-4090"),
    Fleet(1, 8, "B200-180G"),
    Fleet(4, 8, "H100-80G"),
)
# One with tensor parallelism alone, and the one that has data and expert parallelism.
PRESETS = (None, "throughput")
# Models whose class needs more than config.json of the catalogue or the stand-ins have: a part of the error.
NOT_ENOUGH = {
    "sglang": {
        # The catalogue has the names of transformers' class; SGLang reads those of the publisher's code.
        "baidu/ERNIE-4.5-VL-28B-A3B-PT": "no attribute 'in_chans'",
        "stepfun-ai/Step-3.5-Flash": "'tuple' object has no attribute 'split'",
        "stepfun-ai/Step-3.5-Flash-FP8": "'tuple' object has no attribute 'split'",
        "stepfun-ai/Step-3.7-Flash": "'tuple' object has no attribute 'split'",
        "stepfun-ai/Step-3.7-Flash-FP8": "'tuple' object has no attribute 'split'",
        "tencent/Hunyuan-A13B-Instruct": "no attribute 'use_mixed_mlp_moe'",
        # ModelOpt's file beside config.json.
        "nvidia/MiniMax-M3-NVFP4": "Cannot find the config file for modelopt_mixed",
        # Packages of CUDA and of its image have stand-ins, or are not there.
        "deepseek-ai/DeepSeek-OCR": "Please install timm",
        "MiniMaxAI/MiniMax-M3-MXFP8": "name '_raw_flashinfer_mm_mxfp8' is not defined",
        "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic": "between instances of 'MagicMock' and 'int'",
        "RedHatAI/Qwen3-32B-FP8-dynamic": "between instances of 'MagicMock' and 'int'",
    },
    "vllm": {
        # As above.
        "baidu/ERNIE-4.5-VL-28B-A3B-PT": "no attribute 'embed_dim'",
        "stepfun-ai/Step-3.7-Flash": "no attribute 'output_dim'",
        "stepfun-ai/Step-3.7-Flash-FP8": "no attribute 'output_dim'",
        # Mistral's own format beside config.json.
        "mistralai/Leanstral-2603": "No model architectures are specified",
    },
}


@pytest.mark.parametrize("engine", NOT_ENOUGH)
def test_the_engine_makes_the_model_of_every_command(engine: str, tmp_path: Path) -> None:
    version = engines.get(engine).version
    cluster = planned_commands.one_host(tmp_path)
    answers = []
    for fleet in FLEETS:
        planned = planned_commands.cases(cluster, engine, version, fleet, PRESETS)
        cases = [case for case in planned if case.inventory.endswith("(rank 0)")]
        question = planned_commands.question(fleet, engine, cases, tmp_path)
        answer = engine_sites.run(engine, version, f"{engine}_model_driver.py", question)
        answers += zip(cases, answer, strict=True)
    assert len(answers) >= 1000, "the plans themselves are refused"
    exceptions = planned_commands.not_enough(engine) | NOT_ENOUGH[engine]
    refused = planned_commands.refused(exceptions, answers)
    assert not refused, f"{engine} refuses {len(refused)} of {len(answers)}:\n" + "\n".join(refused)
    assert not planned_commands.stale(NOT_ENOUGH[engine], answers), "remove these from NOT_ENOUGH"
