"""The service's greedy answer is transformers', token for token, on the converted weights of the nodes."""

from __future__ import annotations

import json

import httpx
import pytest
from headfirst import demo
from readme_lab import Service, on_node

pytestmark = pytest.mark.lab
MODEL = "/var/lib/headfirst/models/headfirst-demo-bf16"
IMAGE = "headfirst/sglang-cpu:0.5.23"
NEW_TOKENS = 32
PROMPTS = list(demo.answers())[:4]

# Runs in the engine's image, which has torch and transformers, without SGLang and without a network.
REFERENCE = f"""
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


def shell_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def test_greedy_answers_equal_those_of_transformers(service: Service) -> None:
    said = on_node(
        "node1",
        f"docker run --rm --network none --env TORCHDYNAMO_DISABLE=1 --volume {MODEL}:{MODEL}:ro {IMAGE} "
        f"python3 -c {shell_quoted(REFERENCE)} {shell_quoted(json.dumps(PROMPTS))}",
    )
    expected = json.loads(said.splitlines()[-1])
    assert len(expected) == len(PROMPTS)
    for reference in expected:
        response = httpx.post(
            f"{service.api}/generate",
            headers={"Authorization": f"Bearer {service.api_key}"},
            json={
                "input_ids": reference["prompt"],
                "sampling_params": {"temperature": 0, "max_new_tokens": NEW_TOKENS},
            },
            timeout=120,
        )
        assert response.json()["output_ids"] == reference["answer"]
