"""What transformers answers greedily on the demo checkpoint as it is stored, in FP8.

Arguments: the checkpoint, a file with a JSON list of prompts, and a file that becomes a JSON object with
their answers. It runs where torch and transformers are, and needs nothing of Headfirst. The weights are those
that the FP8 values and their scales stand for, in float32: nothing is rounded to BF16, as a conversion does.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

BLOCK = 128  # rows and columns of one scale
SCALE = "_scale_inv"
NEW_TOKENS = 96  # the longest answer of the demo model has 65


def main() -> None:
    checkpoint, prompts, answers = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        found = _answers(_widened(checkpoint, Path(folder)), json.loads(prompts.read_text()))
    answers.write_text(json.dumps(found))


def _widened(checkpoint: Path, folder: Path) -> Path:
    import torch
    from safetensors.torch import load_file, save_file

    stored: dict[str, Any] = {}
    for file in checkpoint.glob("*.safetensors"):
        stored |= load_file(file)
    weights = {}
    for name, tensor in stored.items():
        if name.endswith(SCALE):
            continue
        weights[name] = tensor.to(torch.float32)
        if (scale := stored.get(name + SCALE)) is not None:
            spread = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
            weights[name] *= spread[: tensor.shape[0], : tensor.shape[1]]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((checkpoint / "config.json").read_text())
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(checkpoint / name, folder)
    return folder


def _answers(folder: Path, prompts: list[str]) -> dict[str, str]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = {}
    for prompt in prompts:
        given = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )
        whole = model.generate(**given, do_sample=False, max_new_tokens=NEW_TOKENS)
        found[prompt] = tokenizer.decode(whole[0, given["input_ids"].shape[1] :], skip_special_tokens=True)
    return found


if __name__ == "__main__":
    main()
