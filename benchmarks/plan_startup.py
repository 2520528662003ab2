"""How long `deploy plan` takes, as a multiple of the import of Ansible's library that reads the inventory.

Usage: python benchmarks/plan_startup.py [--runs N] [INVENTORY]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = "import ansible.cli, ansible.inventory.manager, ansible.template, ansible.vars.manager"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inventory", nargs="?", type=Path, default=ROOT / "inventories" / "lab.ini")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    deploy = str(Path(sys.executable).with_name("deploy"))
    plans, imports = [], []
    for _ in range(options.runs + 1):  # side by side, and the first of each warms the caches
        plans.append(_seconds([deploy, "plan", str(options.inventory)]))
        imports.append(_seconds([sys.executable, "-c", LIBRARY]))
    plan, library = statistics.median(plans[1:]), statistics.median(imports[1:])
    found = {"plan_s": round(plan, 2), "library_s": round(library, 2), "ratio": round(plan / library, 2)}
    print(json.dumps(found))


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
