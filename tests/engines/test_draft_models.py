"""Arguments of a draft model are those that the engine accepts, with the draft's files in their folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import engine_sites
import planned_commands
import pytest
from draft_folders import EAGLE3, SPECULATORS, draft_folder
from headfirst.control.deployment.prepare import prepare
from planned_commands import Case, Fleet

FLEET = Fleet(1, 2, "H100-80G")
QWEN, LLAMA = "Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B-Instruct"
OF_LLAMA = EAGLE3 | {
    "architectures": ["LlamaForCausalLM"],
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
# z-lab/Qwen3-8B-DFlash-b16 and deepseek-ai/dspark_qwen3_8b_block7 have these keys.
PARALLEL = {key: value for key, value in EAGLE3.items() if key != "draft_vocab_size"} | {
    "model_type": "qwen3",
    "num_hidden_layers": 5,
    "num_target_layers": 36,
    "layer_types": ["full_attention"] * 5,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
}
LAYERS = [1, 9, 17, 25, 33]
DFLASH = PARALLEL | {
    "architectures": ["DFlashDraftModel"],
    "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": LAYERS},
}
DSPARK = PARALLEL | {
    "architectures": ["Qwen3DSparkModel"],
    "block_size": 7,
    "markov_rank": 256,
    "markov_head_type": "vanilla",
    "mask_token_id": 151669,
    "target_layer_ids": LAYERS,
}
SMALL = planned_commands.config("Qwen/Qwen3-0.6B")
# By name: the target, the draft's config.json, and the engines that take it.
DRAFTS: Mapping[str, tuple[str, Mapping[str, Any], tuple[str, ...]]] = {
    "eagle3": (QWEN, EAGLE3, ("sglang", "vllm")),
    "eagle3 of Llama": (LLAMA, OF_LLAMA, ("vllm", "lmdeploy")),
    "speculators": (QWEN, SPECULATORS, ("vllm",)),
    "dflash": (QWEN, DFLASH, ("sglang", "vllm")),
    "dspark": (QWEN, DSPARK, ("sglang", "vllm")),
    "standalone": (QWEN, SMALL, ("sglang", "vllm")),
}


def planned(folder: Path, engine: str, name: str) -> list[Case]:
    """The ranks of a plan with this draft, whose files are where the plan brings them."""
    model, config, _ = DRAFTS[name]
    some = {"model.norm.weight" if name == "standalone" else "fc.weight": (8, 8)}
    source = draft_folder(folder / "srv" / name.replace(" ", "-"), config, some)
    path = folder / f"{source.name}.ini"
    path.write_text(
        f"[head]\nn0 ansible_host=127.0.0.1 gpus={FLEET.gpus} gpu={FLEET.gpu} nic=lo\n\n[all:vars]\n"
        f"model={model}\nengine={engine}\nweights_dir={folder / 'weights'}\n"
        f"draft_model={source}\n"
    )
    (service,) = prepare([path], [], probe=False).plan.services
    assert service.draft_model is not None
    shutil.copytree(source, service.draft_model.directory)
    return list(planned_commands.of_ranks(name, model, service))


@pytest.mark.parametrize("engine", engine_sites.ENGINES)
def test_the_engine_accepts_a_planned_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    cases = [
        case
        for name, (_, _, takers) in DRAFTS.items()
        if engine in takers
        for case in planned(tmp_path, engine, name)
    ]
    question = planned_commands.question(FLEET, engine, cases, tmp_path)
    answers = engine_sites.run(engine, f"{engine}_driver.py", question)
    refused = planned_commands.refused({}, zip(cases, answers, strict=True))
    assert cases and not refused, "\n".join(refused)
