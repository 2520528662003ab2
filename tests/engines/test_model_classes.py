"""vLLM's own model classes are made of the commands of all plans, on torch's meta device.

They refuse what the configuration does not: heads and blocks of a quantisation that the ranks do not divide,
schemes without a kernel, cache layouts.
"""

from __future__ import annotations

from pathlib import Path

import engine_sites
import planned_commands
from headfirst.decide import engines
from planned_commands import Fleet

FLEETS = (Fleet(1, 4, "A100-80G"), Fleet(1, 2, "RTX-4090"), Fleet(1, 8, "B200-180G"))
# One with tensor parallelism alone, and the one that has data and expert parallelism.
PRESETS = (None, "throughput")
# Models whose config.json in the catalogue is not enough for the class, and a part of what it then raises.
NOT_ENOUGH = {
    # The catalogue has the names of transformers' class; vLLM reads those of the publisher's code.
    "baidu/ERNIE-4.5-VL-28B-A3B-PT": "no attribute 'embed_dim'",
    "stepfun-ai/Step-3.7-Flash": "no attribute 'output_dim'",
    "stepfun-ai/Step-3.7-Flash-FP8": "no attribute 'output_dim'",
    # Mistral's own format beside config.json.
    "mistralai/Leanstral-2603": "No model architectures are specified",
}


def test_vllm_makes_the_model_of_every_command(tmp_path: Path) -> None:
    version = engines.get("vllm").version
    answers = []
    for fleet in FLEETS:
        cluster = planned_commands.one_host(tmp_path)
        cases = list(planned_commands.cases(cluster, "vllm", version, fleet, PRESETS))
        question = planned_commands.question(fleet, "vllm", cases, tmp_path)
        answer = engine_sites.run("vllm", version, "vllm_model_driver.py", question)
        answers += zip(cases, answer, strict=True)
    assert len(answers) >= 500, "the plans themselves are refused"
    refused = planned_commands.refused(planned_commands.not_enough("vllm") | NOT_ENOUGH, answers)
    assert not refused, f"vLLM refuses {len(refused)} of {len(answers)}:\n" + "\n".join(refused)
    assert not planned_commands.stale(NOT_ENOUGH, answers), "remove these from NOT_ENOUGH"
