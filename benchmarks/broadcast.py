"""Time until all nodes of a shaped LAN have a checkpoint, over the time that one TCP stream needs for it.

Usage: python benchmarks/broadcast.py [--nodes 4 8 16] [--rate 400mbit|none] [--mib 1024] [--shards 16]
Needs root and, in --scratch, the size of all copies. Aims at 4, 8, 16 nodes: 1.03, 1.06, 1.10. With
`--nodes 2 --rate none` the processors are the limit: 1.5 times rsync, 2.0 CPU seconds for a GB and copy.
CPU seconds are those of all processes, over the GB that were copied. All copies are compared in the end.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "py"), str(ROOT / "tests")]

from broadcast_tools import TOOLS, Broadcast  # noqa: E402
from headfirst.common.safetensors_file import layout  # noqa: E402
from netns import Lan  # noqa: E402

MIB = 1024 * 1024
_RECEIVE = """
import socket, sys
connection, _ = socket.create_server((sys.argv[1], 5000)).accept()
while connection.recv(1 << 20): pass
"""
_SEND = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 5000))
start, block, count = time.monotonic(), bytes(1 << 20), int(sys.argv[2])
for _ in range(count): connection.sendall(block)
connection.shutdown(socket.SHUT_WR)
connection.recv(1)
print(count * (1 << 20) / (time.monotonic() - start))
"""


def make_checkpoint(folder: Path, mib: int, shards: int) -> None:
    """Random BF16 weights of `mib` MiB in `shards` safetensors files."""
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    places = {}
    for number in range(shards):
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        header, _, size = layout([(f"weight{number}", "BF16", (mib * MIB // shards // 2,))])
        (folder / name).write_bytes(header + os.urandom(size - len(header)))
        places[f"weight{number}"] = name
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def bandwidth(lan: Lan) -> float:
    """Bytes a second that one TCP stream carries between two nodes: median of three."""
    count = "64" if lan.rate else "4096"  # MiB
    rates = []
    for _ in range(3):
        receiver = lan.run(1, [sys.executable, "-c", _RECEIVE, lan.addresses[1]])
        time.sleep(0.5)
        sender = lan.run(0, [sys.executable, "-c", _SEND, lan.addresses[1], count], stdout=subprocess.PIPE)
        output, _ = sender.communicate(timeout=120)
        receiver.wait()
        rates.append(float(output))
    return statistics.median(rates)


def measure(
    tool: type[Broadcast], nodes: int, rate: str | None, source: Path, ideal: float
) -> tuple[float, float]:
    """Seconds until all have it, and CPU seconds. ValueError where a copy differs; TimeoutError."""
    folders = [source, *(source.parent / f"node{number}" for number in range(1, nodes))]
    for folder in folders[1:]:
        folder.mkdir()
    try:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with Lan(nodes, rate) as lan:
            broadcast = tool(lan, folders, time.monotonic() + 60 + nodes * ideal * 2)
            broadcast.prepare()
            start = time.monotonic()
            broadcast.run()
            seconds = time.monotonic() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        shards = [path.name for path in source.glob("*.safetensors")]
        for folder in folders[1:]:
            _, differing, missing = filecmp.cmpfiles(source, folder, shards, shallow=False)
            if differing or missing:
                raise ValueError(f"{folder.name} is no copy: {differing + missing}")
        return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    finally:
        for folder in folders[1:]:
            shutil.rmtree(folder)


def main() -> None:
    """Measure each tool at each number of nodes and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--rate", default="400mbit", help="of each link, as tc writes it; none: unshaped")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--scratch", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS), metavar="TOOL")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that everything is removed
    shape = None if options.rate == "none" else options.rate
    with Lan(2, shape) as lan:
        rate = bandwidth(lan)
    ideal = options.mib * MIB / rate
    print(f"{options.mib} MiB in {options.shards} shards; links of {options.rate}, on which one TCP stream")
    print(
        f"carries {rate * 8 / 1e6:.0f} Mbit/s: {ideal:.1f} s\n\nnodes  {'tool':26} seconds  ratio  CPU s/GB"
    )
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        source = Path(scratch) / "origin"
        make_checkpoint(source, options.mib, options.shards)
        for nodes in options.nodes:
            for name in options.tools:
                print(f"{nodes:5}  {name:26}", end=" ", flush=True)
                tool = TOOLS[name]
                if tool.needs and not shutil.which(tool.needs):
                    print(f"{tool.needs} is not installed")
                    continue
                try:
                    seconds, cpu = measure(tool, nodes, shape, source, ideal)
                except TimeoutError:
                    print("gave up")
                    continue
                copied = options.mib * MIB * (nodes - 1) / 1e9
                print(f"{seconds:7.1f}  {seconds / ideal:5.3f}  {cpu / copied:8.1f}", flush=True)


if __name__ == "__main__":
    main()
