"""What transformers answers greedily, on the converted weights of a node, in the engine's own image."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from headfirst.control import demo
from readme_lab import on_node

MODEL = "/var/lib/headfirst/models/headfirst-demo-bf16"
NEW_TOKENS = 32
PROMPTS = list(demo.answers())[:4]

# Runs in the engine's image, which has torch and transformers, without the engine and without a network.
PROGRAM = f"""
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained({MODEL!r})
model = AutoModelForCausalLM.from_pretrained({MODEL!r}, dtype=torch.bfloat16).eval()
found = []
for prompt in json.loads(sys.argv[1]):
    chat = [dict(role="user", content=prompt)]
    given = tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    ids = given["input_ids"]
    out = model.generate(**given, do_sample=False, max_new_tokens={NEW_TOKENS})
    found.append(dict(prompt=ids[0].tolist(), answer=out[0, ids.shape[1]:].tolist()))
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Reference:
    """Token ids of a prompt, chat template included, and of its answer."""

    prompt: list[int]
    answer: list[int]


def references(image: str, inventory: Path) -> list[Reference]:
    """The answers to PROMPTS, computed on the node `node1` of a lab in an image that is there."""
    said = on_node(
        "node1",
        f"docker run --rm --network none --env TORCHDYNAMO_DISABLE=1 --volume {MODEL}:{MODEL}:ro {image} "
        f"python3 -c {_shell_quoted(PROGRAM)} {_shell_quoted(json.dumps(PROMPTS))}",
        inventory,
    )
    found = [Reference(**one) for one in json.loads(said.splitlines()[-1])]
    assert len(found) == len(PROMPTS)
    return found


def _shell_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
