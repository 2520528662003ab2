"""Commands of prefill and decode replicas are those that the engine accepts."""

from __future__ import annotations

from pathlib import Path

import engine_sites
import planned_commands
import pytest
from headfirst.control.deployment.prepare import prepare
from planned_commands import Case, Fleet

FLEET = Fleet(1, 8, "H100-80G")
MODELS = ("Qwen/Qwen3-32B", "deepseek-ai/DeepSeek-V2-Lite-Chat")
# By engine: settings of the inventory.
SETTINGS = {
    "sglang": ("hca=none", "kv_transfer=nixl", "decode_engine_args='--cuda-graph-max-bs-decode 64'"),
    "vllm": ("hca=none", "decode_engine_args='--max-num-seqs 64'"),
}


def planned(folder: Path, engine: str, model: str, settings: str) -> list[Case]:
    """The ranks of a plan with a prefill and a decode replica on one host."""
    path = folder / "divided.ini"
    path.write_text(
        f"[head]\nn0 ansible_host=127.0.0.1 gpus={FLEET.gpus} gpu={FLEET.gpu} nic=lo\n\n[all:vars]\n"
        f"model={model}\nengine={engine}\n"
        f"prefill_replicas=1\ndecode_replicas=1\n{settings}\n"
    )
    (service,) = prepare([path], [], probe=False).plan.services
    return [
        case
        for replica in service.replicas
        for case in planned_commands.of_ranks(
            f"{replica.role} {settings}", model, service.model_copy(update={"replicas": [replica]})
        )
    ]


@pytest.mark.parametrize("engine", SETTINGS)
def test_the_engine_accepts_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    cases = [
        case
        for model in MODELS
        for settings in SETTINGS[engine]
        for case in planned(tmp_path, engine, model, settings)
    ]
    question = planned_commands.question(FLEET, engine, cases, tmp_path)
    answers = engine_sites.run(engine, f"{engine}_driver.py", question)
    assert len(answers) == len(cases) == 2 * len(MODELS) * len(SETTINGS[engine])
    refused = planned_commands.refused({}, zip(cases, answers, strict=True))
    assert refused == []
