"""The configurations that an engine does not read without the Python code of the checkpoint.

The question is {"engine": …, "folders": {name: folder with config.json}}; the answer is {name: error} of
those that it refuses.
"""

from __future__ import annotations

import planned_gpu


def main() -> None:
    """Answers one file of questions."""
    question = planned_gpu.question()
    if question["engine"] == "sglang":
        from sglang.srt.utils.hf_transformers_utils import get_config
    else:
        from vllm.transformers_utils.config import get_config
    errors = {}
    for name, folder in question["folders"].items():
        try:
            get_config(folder, trust_remote_code=False)
        except Exception as error:  # whatever a class of a configuration raises
            errors[name] = f"{type(error).__name__}: {error}"
    planned_gpu.write(errors)


if __name__ == "__main__":
    main()
