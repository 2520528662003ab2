"""What many hosts cost the controller: seconds and peak memory, as multiples of `ansible all -m ping`.

Usage: python benchmarks/scale.py [HOSTS...]    (default 4 16 64 100; needs root)
The hosts are the stand-ins of tests/stand_ins: an sshd each, with fixtures for Docker, systemd, node tools.
They share the processors with the controller, so the seconds are those of both; the memory is that of the
controller's processes alone (PSS: shared pages are counted once).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
sys.path[:0] = [str(ROOT / "tests")]

from headfirst.control.run.cancel import descendants  # noqa: E402
from stand_ins.hosts import StandIns  # noqa: E402

MIB = 2**20
INTERPRETER = "ansible_python_interpreter=/usr/bin/python3"


class Cost(NamedTuple):
    """Of one command: wall time, and the most memory that its processes had together."""

    seconds: float
    memory: int


def main() -> None:
    """Measure each number of hosts and print a table."""
    print("hosts  command     seconds  of ping   MiB  of ping")
    for count in [int(word) for word in sys.argv[1:]] or [4, 16, 64, 100]:
        with (
            tempfile.TemporaryDirectory(prefix="hf-") as folder,
            StandIns(Path(folder, "hosts"), count) as hosts,
        ):
            measure(hosts)


def measure(hosts: StandIns) -> None:
    """Print a line for each command."""
    deploy, path = str(BIN / "deploy"), str(hosts.inventory)
    ping = [str(BIN / "ansible"), "all", "-i", path, "-m", "ping", "--forks", str(hosts.count)]
    base = cost(hosts, [*ping, "-e", INTERPRETER], (0,))
    show(hosts.count, "ping", base, base)
    show(hosts.count, "plan", cost(hosts, [deploy, "plan", path], (0,)), base)
    show(hosts.count, "check", cost(hosts, [deploy, "check", path, "--plain"], (0, 1)), base)
    show(hosts.count, "first up", cost(hosts, [deploy, "up", path, "--plain"], (0,)), base)
    show(hosts.count, "second up", cost(hosts, [deploy, "up", path, "--plain"], (0,)), base)


def show(hosts: int, what: str, found: Cost, base: Cost) -> None:
    times, memory = found.seconds / base.seconds, found.memory / base.memory
    print(
        f"{hosts:5}  {what:10} {found.seconds:8.1f} {times:8.1f} {found.memory / MIB:6.0f} {memory:8.1f}",
        flush=True,
    )


def cost(hosts: StandIns, command: list[str], accepted: tuple[int, ...]) -> Cost:
    """Run a command that must end with one of these exit codes; with Ansible as `deploy` sets it up."""
    environment = {**hosts.environment, "ANSIBLE_PIPELINING": "1", "ANSIBLE_TIMEOUT": "60"}
    start = time.monotonic()
    with subprocess.Popen(
        hosts.command(*command), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        peak = [1]
        watcher = threading.Thread(target=watch, args=(process, peak), daemon=True)
        watcher.start()
        output, _ = process.communicate()
        watcher.join()
    if process.returncode not in accepted:
        sys.exit(f"{command[:2]} ended with {process.returncode}:\n{output.decode()[-3000:]}")
    return Cost(time.monotonic() - start, peak[0])


def watch(process: subprocess.Popen[bytes], peak: list[int]) -> None:
    """Keep the highest sum in `peak` while the process runs."""
    while process.poll() is None:
        pids = [process.pid, *(one.pid for one in descendants(process.pid))]
        peak[0] = max(peak[0], sum(map(proportional_bytes, pids)))
        time.sleep(0.5)


def proportional_bytes(pid: int) -> int:
    """Memory of a process with its share of what it shares; 0 when it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(text.partition("\nPss:")[2].split()[0]) * 1024 if "\nPss:" in text else 0


if __name__ == "__main__":
    main()
