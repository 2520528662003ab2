"""All-reduces between the ranks of several nodes: this node's part, with one process a rank.

Runs inside the engine's image. Leaves a JSON object in the file that HEADFIRST_RESULT_FILE names, and exits 0
also when the test failed: then `errors` says why.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# Imports and the start of CUDA, on a busy machine.
START_S = 240
# How long the others may still tell their own reason when one rank of this node has failed.
LAST_WORDS_S = 15


def main() -> None:
    """Start the ranks of this node, wait for them, and keep what they found."""
    options = _options()
    Path("/proc/self/oom_score_adj").write_text("1000")  # what runs out of memory first is the test
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        argv = [sys.executable, str(Path(__file__).parent / "rank.py"), json.dumps(vars(options)), name]
        ranks = [subprocess.Popen([*argv, str(local)]) for local in range(options.ranks_per_node)]
        late = _wait(ranks, time.monotonic() + START_S + len(options.backends) * (options.seconds + 120))
        found = [_read(folder / f"rank{local}.json") for local in range(options.ranks_per_node)]
    errors = [one["error"] for one in found if one.get("error")]
    for one, rank in zip(found, ranks, strict=True):
        if not one:
            errors.append(_silent(rank.returncode, late=late))
    result = {
        "runs": found[0].get("runs", []),
        "torch": found[0].get("torch", ""),
        "nccl_log": sorted({line for one in found for line in one.get("nccl_log", [])}),
        "errors": errors,
    }
    _write(Path(os.environ["HEADFIRST_RESULT_FILE"]), {"comm": result})


def _silent(code: int, *, late: bool) -> dict[str, Any]:
    """A rank that left no word of its own."""
    said = f"a rank ended with {code}"
    if late:
        said = "a rank did not end"
    elif code == -signal.SIGKILL:
        said = "a rank was killed; dmesg tells whether the memory ran out"
    return {"at": time.time(), "doing": "all-reduces were made", "message": said, "fix": "", "echo": False}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--node", type=int)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--ranks-per-node", type=int)
    parser.add_argument("--head")
    parser.add_argument("--port", type=int)
    parser.add_argument("--backends", nargs="+")
    parser.add_argument("--seconds", type=int)
    return parser.parse_args()


def _wait(ranks: list[subprocess.Popen[bytes]], end: float) -> bool:
    """Until all have ended, or one has failed, or the time is up; whether it was."""
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            end = min(end, time.monotonic() + LAST_WORDS_S)
        if time.monotonic() > end:
            for rank in ranks:
                rank.kill()
                rank.wait()
            return True
        time.sleep(0.1)
    return False


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _write(path: Path, value: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    part.replace(path)


if __name__ == "__main__":
    main()
