"""What each engine's probe makes of a command: the engine's own sentence, or nothing where it accepts it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import engine_sites
import planned_commands
import pytest
from planned_commands import Fleet

MODEL = "Qwen/Qwen3-0.6B"
GPUS = Fleet(1, 8, "H100-80G")
# Behind the words that the engine's own parser reads; SGLang and vLLM as they run on CPUs.
SGLANG = ("--device", "cpu", "--attention-backend", "torch_native")
PLAIN: Mapping[str, tuple[str, ...]] = {
    "sglang": ("python3", "-m", "sglang.launch_server", *SGLANG, "--tp", "2", "--model-path"),
    "vllm": ("serve",),
    "lmdeploy": ("serve", "api_server", "--backend", "pytorch", "--tp", "2"),
}
ENVIRONMENT = {"SGLANG_USE_CPU_ENGINE": "1"}
DORA = {"peft_type": "LORA", "target_modules": ["q_proj"], "r": 8, "lora_alpha": 8, "use_dora": True}
# What follows the model's folder, by case, and a part of the sentence that is the engine's.
CASES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "sglang": {
        "accepted": ("--config {folder}/engine.yaml", ""),
        "flag": ("--no-such-flag", "unrecognized arguments: --no-such-flag"),
        "class": ("", "'NoSuchForCausalLM' is not a registered model"),
        "quantisation": ("--quantization awq", "Cannot find the config file for awq"),
        "method": ("--quantization nosuch", "argument --quantization: invalid choice: 'nosuch'"),
        "heads": ("--tp 3", "total_num_heads % attn_tp_size == 0 is not so (qwen3.py"),
        "context": ("--context-length 1000000", "greater than the derived context_length (40960)"),
        "adapter": ("--enable-lora --lora-paths a={folder}/a", "doesn't support DoRA adapters"),
    },
    "vllm": {
        "accepted": ("--tensor-parallel-size 2 --config {folder}/engine.yaml", ""),
        "flag": ("--no-such-flag", "unrecognized arguments: --no-such-flag"),
        "class": ("", "['NoSuchForCausalLM'] are not supported for now"),
        "quantisation": ("--quantization awq", "Cannot find the config file for awq"),
        "method": ("--quantization nosuch", "Unknown quantization method: nosuch"),
        "heads": ("--tensor-parallel-size 3", "(16) must be divisible by tensor parallel size (3)"),
        "context": ("--max-model-len 1000000", "max_model_len (1000000) is greater than the derived"),
        "adapter": ("--enable-lora --lora-modules a={folder}/a", "does not yet support DoRA"),
    },
    "lmdeploy": {
        "accepted": ("", ""),
        "flag": ("--no-such-flag", "unrecognized arguments: --no-such-flag"),
        "class": ("", "Can not found rewrite for architectures: ['NoSuchForCausalLM']"),
        "quantisation": ("--model-format awq", "Unsupported weight quantization method: awq"),
        "method": ("--model-format nosuch", "argument --model-format: invalid choice: 'nosuch'"),
        "heads": ("--tp 3", "num_attention_heads % tp == 0 is not so (config.py"),
    },
}


def files(folder: Path) -> dict[str, str]:
    """A model, the same one with a class that no engine has, an adapter, and the settings of rank 0."""
    config = planned_commands.config(MODEL)
    models = {"published": config, "strange": config | {"architectures": ["NoSuchForCausalLM"]}}
    return {
        **{f"{folder}/{name}/config.json": json.dumps(content) for name, content in models.items()},
        **{f"{folder}/{name}/tokenizer.json": json.dumps(planned_commands.TOKENIZER) for name in models},
        f"{folder}/a/adapter_config.json": json.dumps(DORA),
        f"{folder}/engine.yaml": "api-key: dummy\n",
    }


@pytest.mark.parametrize("engine", engine_sites.ENGINES)
def test_the_engine_says_what_it_refuses(engine: str, tmp_path: Path) -> None:
    commands = [["bash", "-c", "ray start"]]
    for name, (words, _) in CASES[engine].items():
        model = tmp_path / ("strange" if name == "class" else "published")
        commands.append([*PLAIN[engine], str(model), *words.format(folder=tmp_path).split()])
    asked = [{"argv": words, "env": ENVIRONMENT} for words in commands]
    # LMDeploy has no back end for CPUs.
    gpu = planned_commands.gpu(GPUS) if engine == "lmdeploy" else None
    told = engine_sites.probe(engine, {"commands": asked, "files": files(tmp_path)}, gpu)
    ray, *answers = told["commands"]
    assert "answers" not in told and ray["read"] is False
    for (name, (_, sentence)), answer in zip(CASES[engine].items(), answers, strict=True):
        assert answer["seconds"] < 120 and "why" not in answer, (name, answer)
        assert sentence in (answer["problem"] or ""), (name, answer)
        assert bool(sentence) == bool(answer["problem"]), (name, answer)
