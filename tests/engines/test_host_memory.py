"""Arguments of host memory: the plan refuses what the engines' own checks refuse, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import engine_sites
import planned_commands
import pytest
from headfirst.decide import engines
from headfirst.decide.engines.host_memory import HostRequest
from headfirst.decide.engines.layout import Layout
from headfirst.decide.hardware import gpus
from headfirst.decide.model import catalogue

MODEL = "Qwen/Qwen3-32B"
HICACHE = "--enable-hierarchical-cache"
OFFLOAD = "--disaggregation-decode-enable-offload-kvcache"
# With the role of a replica where prefill and decode are divided.
SGLANG = (
    (HICACHE, None),
    (HICACHE, "prefill"),
    (HICACHE, "decode"),
    (f"{HICACHE} --disaggregation-decode-enable-radix-cache", "decode"),
    (f"{HICACHE} --disable-radix-cache", None),
    (f"{HICACHE} --hicache-size -1", None),
    (f"{HICACHE} --hicache-ratio 0", None),
    (f"{HICACHE} --hicache-host-memory-mode buffer_only", None),
    (f"{HICACHE} --hicache-host-memory-mode buffer_only --hicache-storage-backend file", None),
    ("--hicache-host-memory-mode buffer_only", None),
    ("--hicache-host-memory-mode buffer_only", "decode"),
    ("--hicache-host-memory-mode buffer_only --hicache-storage-backend file", "decode"),
    ("--hicache-host-memory-fraction 0", None),
    (f"{HICACHE} --hicache-host-memory-fraction 1", None),
    (OFFLOAD, "decode"),
    (f"{OFFLOAD} --hicache-storage-backend file", "decode"),
    (f"{OFFLOAD} --hicache-storage-backend file", "prefill"),
    (f"{HICACHE} --enable-lmcache", None),
    ("--enable-lmcache --disable-radix-cache", None),
    ("--enable-lmcache", "decode"),
    ("--cpu-offload-gb 10", None),
)
VLLM = (
    ("--kv-offloading-size 10", None),
    ("--cpu-offload-gb 10", None),
    ("--offload-group-size 8 --offload-num-in-group 2", None),
    ("--offload-group-size 8 --offload-num-in-group 9", None),
    ("--offload-group-size 8 --offload-prefetch-step 0", None),
    ("--offload-backend prefetch", None),
)
CASES = {"sglang": SGLANG, "vllm": VLLM}


@pytest.mark.parametrize(("name", "version"), [pair for pair in engine_sites.VERSIONS if pair[0] in CASES])
def test_the_engine_refuses_the_same_arguments(name: str, version: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(planned_commands.config(MODEL)), encoding="utf-8")
    model = {"sglang": ["--model-path", str(tmp_path), "--tp", "2"], "vllm": [str(tmp_path)]}[name]
    roles = [["--disaggregation-mode", role] if role else [] for _, role in CASES[name]]
    commands = [[*model, *words.split(), *role] for (words, _), role in zip(CASES[name], roles, strict=True)]
    gpu = gpus.find("H100-80G")
    question = {
        "gpu": {
            "name": f"NVIDIA {gpu.name}",
            "memory_mib": gpu.memory_bytes >> 20,
            "capability": list(gpu.compute_capability or ()),
            "count": 8,
        },
        "commands": commands,
        "environments": [{} for _ in commands],
    }
    answers = engine_sites.run(name, version, f"{name}_driver.py", question)
    refused = [
        (case, answer.get("error"), problems)
        for case, answer in zip(CASES[name], answers, strict=True)
        for problems in [_problems(name, version, *case)]
        if ("error" in answer) != bool(problems)
    ]
    assert refused == []


def _problems(name: str, version: str, words: str, role: str | None) -> tuple[str, ...]:
    engine, checkpoint = engines.get(name, version), catalogue.lookup(MODEL)
    assert checkpoint is not None
    values = engine.check_arguments(words.split()).require(where=None)
    if engine.disaggregation:
        values = {**values, **engine.disaggregation.values(role)}  # type: ignore[arg-type]
    request = HostRequest(checkpoint, Layout(2), 2, values, {}, role, 40 << 30, 100_000, 10_000)
    return engine.host_memory(request).problems
