"""What the tests of fetching share: a small checkpoint, and `headfirst-weights fetch` in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from fake_hub import MODEL, FakeHub
from weights_checkpoints import fp8_weight, scales, write_checkpoint

SHARD_1 = "model-00001-of-000002.safetensors"
SHARD_2 = "model-00002-of-000002.safetensors"
FETCH = (sys.executable, "-c", "from headfirst.node.weights.cli import main; main()", "fetch")


def write_source(folder: Path, megabytes: int = 0) -> None:
    """Two shards, of which the first is named first by the index; `megabytes` more in the first one."""
    ballast = np.random.default_rng(1).integers(0, 256, megabytes * 1_000_000, dtype=np.uint8)
    shards = {
        SHARD_1: {"a.weight": fp8_weight(128, 128), "a.ballast": ballast},
        SHARD_2: {"a.weight_scale_inv": scales(128, 128), "b.weight": np.ones((4, 8), np.float16)},
    }
    write_checkpoint(folder, shards)


def environment(hub: FakeHub, folder: Path, **more: str) -> dict[str, str]:
    """The environment of a fetch: the hub for both clients, and a home in `folder`."""
    return {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PATH": os.environ["PATH"],
        "HF_ENDPOINT": hub.url,
        "MODELSCOPE_ENDPOINT": hub.url,
        "HF_HOME": str(folder / "home"),
        "MODELSCOPE_HOME": str(folder / "home"),
        "HOME": str(folder / "home"),
        "HEADFIRST_RESULT_FILE": str(folder / "result.json"),
        "HEADFIRST_PROGRESS_FILE": str(folder / "progress.json"),
        **more,
    }


def run_fetch(
    hub: FakeHub, target: Path, *arguments: str, source: str, **more: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, object]]:
    """Fetch in a process of its own, since the clients read their settings on import; with its result."""
    result = target.parent / "result.json"
    result.unlink(missing_ok=True)
    done = subprocess.run(
        [*FETCH, *(arguments or (MODEL,)), str(target), "--from", source],
        env=environment(hub, target.parent, **more),
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done, json.loads(result.read_text()) if result.exists() else {}
