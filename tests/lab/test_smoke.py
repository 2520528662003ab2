"""`deploy test` and `deploy bench` on the lab's real engine, whose model has learned a few sentences only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from headfirst.control.bench.result import read
from readme_lab import Service, deploy, succeeds

pytestmark = pytest.mark.lab

# With the reason in the server's or the plan's words.
NOT_SUPPORTED = {
    "sampling.seed": "--enable-deterministic-inference",
    "tools.auto": "tool parser",
    "tools.named": "tool parser",
    "reasoning.separate": "reasoning parser",
    "embeddings.single": "embedding model",
    "embeddings.batch": "embedding model",
    "embeddings.base64": "embedding model",
    "embeddings.dimensions": "embedding model",
    "rerank.order": "400",
    "reward.score": "embedding model",
    "classify.labels": "embedding model",
    "vision.image": "only supports text",
    "lora.adapter": "no LoRA adapter",
    "errors.unknown-model": "whatever name",
}


def test_every_case_has_an_honest_verdict(service: Service) -> None:
    done = deploy("test", options=["--json"])
    report = json.loads(done.stdout)
    found = {result["case"]: (result["verdict"], result["why"]) for result in report["results"]}
    failed = {case: why for case, (verdict, why) in found.items() if verdict == "failed"}
    assert (failed, done.returncode) == ({}, 0)
    lacking = {case: why for case, (verdict, why) in found.items() if verdict == "not supported"}
    assert lacking.keys() == NOT_SUPPORTED.keys(), lacking
    for case, words in NOT_SUPPORTED.items():
        assert words in lacking[case], lacking[case]


def test_the_service_is_measured_at_two_loads(service: Service, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(f'{{"prompt": "Number {n}", "max_tokens": 8}}\n' for n in range(8)))
    options = ["--dataset", str(prompts), "--concurrency", "1,4", "--requests", "8", "--warmup", "1"]
    succeeds("bench", options=[*options, "-o", str(tmp_path / "run"), "--json"])
    result = read(tmp_path / "run")
    assert [(point.requests, point.failed, point.answer_tokens) for point in result.points] == [(8, 0, 8)] * 2
    assert "--model-path" in result.subject.arguments
    assert service.api_key not in (tmp_path / "run" / "result.json").read_text()


def test_the_service_is_as_it_was(service: Service) -> None:
    assert deploy("status").returncode == 0
