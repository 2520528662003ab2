"""The quantisation by which SGLang loads a checkpoint, by its own check of config.json and --quantization.

The question is {"capability": [major, minor], "configs": [quantization_config or null, …], "given": [method
or null, …]}; the answer has for each config a list with the method that results of each; null: refused.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import planned_gpu
import sglang_driver


def loaded(config: dict[str, Any] | None, given: str | None) -> str | None:
    """What ModelConfig makes of `given`, "" where it is nothing; None where it raises."""
    from sglang.srt.configs.model_config import ModelConfig

    model = ModelConfig.__new__(ModelConfig)
    model.hf_config = SimpleNamespace(quantization_config=copy.deepcopy(config))
    model.model_path, model.is_draft_model, model.quantization = ".", False, given
    try:
        model._verify_quantization()
    except ValueError:
        return None
    return model.quantization or ""


def main() -> None:
    """Answers one file of questions."""
    question = planned_gpu.question()
    gpu = {"name": "NVIDIA GPU", "memory_mib": 81920, "capability": question["capability"], "count": 8}
    planned_gpu.install(gpu, sglang_driver.ABSENT)
    planned_gpu.write(
        [[loaded(config, given) for given in question["given"]] for config in question["configs"]]
    )


if __name__ == "__main__":
    main()
