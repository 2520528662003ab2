"""A second `deploy up` on converged nodes, as a multiple of `ansible all -m setup` on the same nodes.

Usage: python benchmarks/second_up.py [NODES]    (default 4; makes a lab of its own and removes it)
Both are timed alternately, three times each; the medians and their ratio are printed. Aim: 5.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headfirst.control.deployment.lab_nodes import lab_logins
from headfirst.control.deployment.running import inventory
from headfirst.control.inventory.inventory import load

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
ROUNDS = 3
NETWORK = "10.213.95"


def lab_inventory(nodes: int) -> str:
    """The README's inventory with more nodes, on a network of its own."""
    lines = (ROOT / "inventories" / "lab.ini").read_text().replace("10.213.0", NETWORK)
    workers = "\n".join(f"node{i} ansible_host={NETWORK}.{10 + i}" for i in range(3, nodes + 1))
    return lines.replace("\n[all:vars]", f"{workers}\n\n[all:vars]")


def seconds(*command: str) -> float:
    """Wall time of a command that must end well."""
    start = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


def main() -> None:
    """Make the lab, measure, print, remove the lab."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    with tempfile.TemporaryDirectory() as folder:
        path, login = Path(folder) / "bench.ini", Path(folder) / "login.yml"
        path.write_text(lab_inventory(nodes))
        deploy = str(BIN / "deploy")
        try:
            print(f"first up on {nodes} nodes: {seconds(deploy, 'up', str(path), '--plain'):.0f} s")
            cluster = load([path])
            hosts: dict[str, dict[str, object]] = {host.name: {} for host in cluster.hosts}
            inventory.write(login, cluster, hosts, lab_logins(cluster))
            setup = [str(BIN / "ansible"), "all", "-i", str(path), "-i", str(login), "-m", "setup"]
            rounds = [(seconds(deploy, "up", str(path), "--plain"), seconds(*setup)) for _ in range(ROUNDS)]
        finally:
            subprocess.run([deploy, "lab", "down", str(path), "--plain"], check=True)
    up, gather = (statistics.median(times) for times in zip(*rounds, strict=True))
    print(f"second up {up:.1f} s, ansible all -m setup {gather:.1f} s, ratio {up / gather:.1f}")


if __name__ == "__main__":
    main()
