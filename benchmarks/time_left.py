"""The time left that a verb prints, as a multiple of the time that it then took.

Usage: python benchmarks/time_left.py [ROUNDS]    (default 3; makes a lab of its own and removes it)
Each round runs `up` where nothing changes, `down`, and `up` after that. Of each run that has one of its kind
before it, the estimate at the begin of each stage is compared with the rest of the run. Aim: 0.7 to 1.3.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headfirst.control.credentials.identity import cluster_folder
from headfirst.control.inventory.inventory import load
from headfirst.control.run import history
from headfirst.control.run.history import RunHistory
from headfirst.control.run.time_left import TimeLeft

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = Path(sys.executable).parent / "deploy"
NETWORK = "10.213.94"
VERBS = ("up", "down", "up")
SHORTEST_S = 10.0  # of less nobody reads an estimate


def ratios(found: RunHistory) -> Iterator[tuple[str, float, bool]]:
    """Verb, estimate / truth, and whether it is the run's first estimate; of the runs in their order."""
    for number, run in enumerate(found.runs):
        before = RunHistory(runs=found.runs[:number])
        left = TimeLeft(before, run.kind, changes=run.changed, weights=run.weights)
        first = True
        for stage in run.stages:
            truth = run.seconds - stage.began
            estimate = left.begin(stage.stage).left_seconds
            if estimate is not None and truth >= SHORTEST_S:
                yield (
                    f"{run.kind.verb} {'with' if run.changed else 'without'} changes",
                    estimate / truth,
                    first,
                )
                first = False
            left.end(stage.stage, changed=stage.changed > 0)


def main() -> None:
    """Make the lab, run the verbs, print, remove the lab."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.ini"
        path.write_text((ROOT / "inventories" / "lab.ini").read_text().replace("10.213.0", NETWORK))
        try:
            for verb in ("up", *VERBS * rounds):
                subprocess.run([DEPLOY, verb, path, "--plain"], check=True, stdout=subprocess.DEVNULL)
            found = history.read(cluster_folder(load([path])))
        finally:
            subprocess.run([DEPLOY, "lab", "down", path, "--plain"], check=True)
    for kind in dict.fromkeys(kind for kind, _, _ in ratios(found)):
        at_begin = [ratio for one, ratio, first in ratios(found) if one == kind and first]
        every = [ratio for one, ratio, _ in ratios(found) if one == kind]
        good = sum(0.7 <= ratio <= 1.3 for ratio in every)
        print(
            f"{kind}: {len(at_begin)} runs, estimate / truth at the begin {min(at_begin):.2f} to "
            f"{max(at_begin):.2f} (median {statistics.median(at_begin):.2f}); "
            f"{good} of {len(every)} estimates within 30 %"
        )


if __name__ == "__main__":
    main()
