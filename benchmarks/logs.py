"""`deploy diagnose --log` of a large log, as a multiple of `grep -c Error`, and the memory that it needs.

Usage: python benchmarks/logs.py [MEGABYTES]    (default 200, of each of four logs)
`serves`: an engine's reports and requests, with a failure in the middle; `prompts`: requests with their
texts; `unlike` and `errors`: no two of its lines, or of its error lines, are alike.
"""

from __future__ import annotations

import os
import random
import resource
import string
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

DEPLOY = Path(sys.executable).parent / "deploy"
WORDS = ("river", "history", "question", "answer", "model", "light", "summer", "bread", "train", "number")
FAILURE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def lines(kind: str) -> Iterator[str]:
    """Lines of a log without an end."""
    random.seed(1)
    while True:
        if kind == "serves":
            rate, usage = random.random() * 900, random.random()
            yield f"[loggers.py:248] Engine 000: throughput: {rate:.1f} tokens/s, KV usage: {usage:.1%}"
            yield f'10.0.0.{random.randrange(250)}:{random.randrange(9999)} - "POST /v1/completions" 200'
        text = " ".join(random.choices(WORDS, k=150 if kind == "prompts" else 8))
        if kind == "unlike":
            yield f"[worker.py:7] {text} {''.join(random.choices(string.ascii_lowercase, k=40))}"
        elif kind == "errors":
            yield f"[serving.py:9] ValueError: {text} {uuid.uuid4().hex}"
        else:
            yield f"[logger.py:42] Received request chatcmpl-{uuid.uuid4().hex}: prompt: '{text}'"


def write(path: Path, kind: str, size: int) -> None:
    """A log of vLLM as `docker logs --timestamps` prints it."""
    written, begun = 0, kind != "serves"
    with path.open("w") as file:
        for number, text in enumerate(lines(kind)):
            clock = f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
            if not begun and written > size // 2:
                begun, text = True, FAILURE
            written += file.write(f"2026-01-05T{clock}.5Z (APIServer pid=1) vllm 01-05 {clock} {text}\n")
            if written > size:
                return


def seconds(*command: str | Path) -> float:
    """How long a command takes, whatever its exit code."""
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return time.perf_counter() - started


def main() -> None:
    """Print a line a log."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else 200) * 1_000_000
    for kind in ("serves", "prompts", "unlike", "errors"):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / f"{kind}.log"
            write(log, kind, size)
            grep, diagnose = seconds("grep", "-c", "Error", log), seconds(DEPLOY, "diagnose", "--log", log)
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(
            f"{kind}: {size / 1e6:.0f} MB in {diagnose:.1f} s, {diagnose / grep:.0f} times grep;"
            f" at most {memory:.0f} MiB; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
