"""How vLLM divides the KV cache of models: the rows of tools/vllm_kv.py on H100s, for {name: config.json}."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import nemotron_nas
import vllm_without_gpu
from vllm_kv import row

SIZES = (1, 4)


def main() -> None:
    """Answers one file of questions."""
    vllm_without_gpu.stand_in(*vllm_without_gpu.GPUS["H100-80G"])
    from model_folder import model_folder

    nemotron_nas.register()
    answer = {}
    for name, config in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")).items():
        with model_folder({"config": config}) as model:
            answer[name] = [made for size in SIZES for made in row(model, "H100-80G", size, {})]
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
