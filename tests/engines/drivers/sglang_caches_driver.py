"""How SGLang divides the KV cache of models: tools/sglang_memory.py on H200s, for {name: config.json}."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import nemotron_nas
from model_folder import model_folder
from sglang_memory import divided, gpu

SIZES = (1, 4)


def main() -> None:
    """Answers one file of questions."""
    logging.disable(logging.CRITICAL)
    nemotron_nas.register()
    answer = {}
    for name, config in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")).items():
        rows = []
        with model_folder({"config": config}) as model:
            for size in SIZES:
                arguments = {"tp_size": size}
                try:
                    with gpu("H200"):
                        rows.append({"tensor": size} | divided(model, arguments))
                except (AssertionError, RuntimeError, ValueError) as refusal:
                    print(name, size, str(refusal)[:200])
        answer[name] = rows
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
