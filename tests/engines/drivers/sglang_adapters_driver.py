"""The modules for which SGLang's pool of LoRA adapters has sizes, by model.

The question is {name: a record of tests/unit/data/model-configs}. The answer has for each name the modules
that SGLang finds in the model (`modules`) and those that its pool accepts (`sized`), or what it
raised (`error`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from model_folder import model_folder
from sglang.srt.lora.utils import auto_detect_lora_target_modules
from sglang_lora import REFUSALS, buffers
from sglang_memory import gpu
from sglang_weights import built, without_kernels


def sizes(path: str) -> dict[str, Any]:
    """All modules of one model on one GPU, and those with sizes."""
    with built(path, {"tp_size": 1}) as model:
        modules = sorted(auto_detect_lora_target_modules(model))
        return {"modules": modules, "sized": [name for name in modules if is_sized(model, name)]}


def is_sized(model: Any, name: str) -> bool:
    """Whether SGLang's pool has buffers for adapters of this module."""
    try:
        buffers(model, model.config, [name])
    except REFUSALS:
        return False
    return True


def main() -> None:
    """Answers one file of questions."""
    without_kernels()
    answers: dict[str, Any] = {}
    for name, record in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")).items():
        with model_folder(record) as path, gpu("H200"):
            try:
                answers[name] = sizes(path)
            except Exception as error:  # whatever a class raises of a config.json with too few keys
                answers[name] = {"error": f"{type(error).__name__}: {error}"}
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
