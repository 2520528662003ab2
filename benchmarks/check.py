"""`deploy check`, as a multiple of `ansible all -m setup` on the same nodes.

Usage: python benchmarks/check.py [NODES...]    (default 4 8; makes a lab of its own for each and removes it)
Both are timed alternately, five times each, after one of each that does not count; the medians and their
ratio are printed. Aim: 3 on four nodes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from headfirst.control.deployment.lab_nodes import lab_logins
from headfirst.control.deployment.running import inventory
from headfirst.control.inventory.inventory import load
from headfirst.control.run.environment import forks
from second_up import BIN, lab_inventory

ROUNDS = 5
DEPLOY = str(BIN / "deploy")


def main() -> None:
    """Measure each size on fresh nodes and print."""
    for nodes in [int(word) for word in sys.argv[1:]] or [4, 8]:
        with tempfile.TemporaryDirectory() as folder:
            path, login = Path(folder) / "bench.ini", Path(folder) / "login.yml"
            path.write_text(lab_inventory(nodes))
            try:
                subprocess.run([DEPLOY, "lab", "up", str(path), "--plain"], check=True)
                rounds = measure(path, login)
            finally:
                subprocess.run([DEPLOY, "lab", "down", str(path), "--plain"], check=True)
        check, gather = (statistics.median(times) for times in zip(*rounds, strict=True))
        print(
            f"{nodes} nodes: deploy check {check:.1f} s, ansible all -m setup {gather:.1f} s,"
            f" ratio {check / gather:.1f}"
        )


def measure(path: Path, login: Path) -> list[tuple[float, float]]:
    """Seconds of `deploy check` and of `ansible all -m setup`, of each round."""
    cluster = load([path])
    no_variables: dict[str, dict[str, Any]] = {host.name: {} for host in cluster.hosts}
    inventory.write(login, cluster, no_variables, lab_logins(cluster))
    check = [DEPLOY, "check", str(path), "--plain"]
    setup = [str(BIN / "ansible"), "all", "-i", str(path), "-i", str(login), "-m", "setup"]
    # As `deploy` has them, so that the comparison is not easier than need be.
    setup += ["--forks", str(forks(len(cluster.hosts))), "-e", "ansible_python_interpreter=/usr/bin/python3"]
    rounds = [(seconds(check, (0, 1)), seconds(setup, (0,))) for _ in range(ROUNDS + 1)]
    return rounds[1:]


def seconds(command: list[str], accepted: tuple[int, ...]) -> float:
    """Wall time of a command that must end with one of these exit codes."""
    start = time.monotonic()
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    took = time.monotonic() - start
    assert done.returncode in accepted, f"{command[:2]} ended with {done.returncode}"
    return took


if __name__ == "__main__":
    main()
