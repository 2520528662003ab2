"""The configurations that an engine does not read without the Python code of the checkpoint.

The question is {"engine": …, "folders": {name: folder with config.json}}; the answer is {name: error} of
those that it refuses.
"""

from __future__ import annotations

import importlib

import planned_gpu


def main() -> None:
    """Answers one file of questions."""
    question = planned_gpu.question()
    modules = {
        "sglang": ("sglang.srt.utils.hf_transformers_utils", "get_config"),
        "vllm": ("vllm.transformers_utils.config", "get_config"),
        "lmdeploy": ("lmdeploy.hf_configs", "config_from_pretrained"),
    }
    module, name = modules[question["engine"]]
    get_config = getattr(importlib.import_module(module), name)
    errors = {}
    for model, folder in question["folders"].items():
        try:
            get_config(folder, trust_remote_code=False)
        except Exception as error:  # whatever a class of a configuration raises
            errors[model] = f"{type(error).__name__}: {error}"
    planned_gpu.write(errors)


if __name__ == "__main__":
    main()
