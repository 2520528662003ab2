"""An engine that is installed here: what its probe answers on a GPU, and a start with dummy weights."""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

Results = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
TOKENIZER = ROOT / "py/headfirst/control/demo/checkpoint"
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 2048,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
# Bytes of the weights: a layer's attention and MLP, and the embedding, in BF16.
WEIGHTS_GIB = 2 * (4 * (1024 * 128 * (16 + 8 + 8 + 16) + 3 * 1024 * 3072) + 2048 * 1024) / 2**30
COMMANDS = {
    "sglang": ["python3", "-m", "sglang.launch_server", "--model-path"],
    "vllm": ["vllm", "serve"],
}
HEALTH = {"sglang": "/health_generate", "vllm": "/health"}
START_S, ANSWER_S = 240, 300


@pytest.fixture(params=sorted(COMMANDS))
def engine(request: pytest.FixtureRequest, torch: Any) -> str:
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder without weights."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for file in TOKENIZER.glob("*token*.json"):
        shutil.copy(file, folder)
    return folder


def asked(engine: str, request: dict[str, Any]) -> Any:
    """What the probe of the engine answers."""
    loader, modules = importlib.import_module("headfirst.decide.engines.probing").program(engine)
    sent = json.dumps({"modules": modules, "request": request})
    done = subprocess.run(
        [sys.executable, "-c", loader],
        input=sent,
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_the_probe_answers_and_reads_commands(engine: str, model: Path, results: Results) -> None:
    good = [*COMMANDS[engine], str(model)]
    wrong = [*good, "--of-another-engine", "1"]
    commands = [{"argv": argv, "env": {}} for argv in (good, wrong)]
    told = asked(engine, {"answers": True, "commands": commands, "files": {}})
    document = told["answers"]
    results[f"probe_{engine}"] = {
        "version": document["version"],
        "options": len(document["options"]),
        "cuda": document.get("cuda"),
        "nccl": document.get("nccl"),
        "unanswered": document["unanswered"],
        "seconds": [each["seconds"] for each in told["commands"]],
    }
    assert document["options"]
    assert told["commands"][0]["problem"] is None
    assert "--of-another-engine" in told["commands"][1]["problem"]


def test_dummy_weights_serve_and_take_the_memory_that_is_planned(
    engine: str, model: Path, results: Results, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path / "engine.log"
    words = [
        *COMMANDS[engine],
        str(model),
        "--load-format",
        "dummy",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with log.open("w") as file:
        began = time.time()
        running = subprocess.Popen(words, stdout=file, stderr=file)
    try:
        while not answers(f"http://127.0.0.1:{port}{HEALTH[engine]}"):
            assert running.poll() is None, log.read_text()[-4000:]
            assert time.time() - began < START_S, log.read_text()[-4000:]
            time.sleep(1)
        ready = time.time()
    finally:
        running.terminate()
        running.wait(60)
    measured = importlib.import_module("headfirst.decide.diagnose.measured")
    found = importlib.import_module("headfirst.decide.engines").get(engine)
    lines = [measured.Line(began, text) for text in log.read_text().splitlines()]
    told = measured.of_log(found, {"weights_gib": WEIGHTS_GIB}, lines, began)
    figures = {figure.name: [figure.measured, figure.planned] for figure in told.figures}
    results[f"dummies_{engine}"] = {"seconds": round(ready - began, 1), "measured_planned": figures}
    assert figures["KV cache"][0] > 0
    # Engines report two digits of GiB, and allocate in blocks.
    assert figures["weights"][0] == pytest.approx(WEIGHTS_GIB, abs=0.05)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
