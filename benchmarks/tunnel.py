#!/usr/bin/env python3
"""What the SSH tunnel of `deploy bench` costs, over loopback.

The load tool sends requests to a server directly, through a tunnel, and through one that sends small pieces
at once, in turns. Prints the ratios of the medians over the rounds. The server sends a token every 20 ms; an
sshd of its own is started for the time.
Usage: python benchmarks/tunnel.py [CONCURRENCY [ROUNDS]]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from headfirst.control.bench import requests
from headfirst.control.bench.load import Load
from headfirst.control.bench.result import Point, RequestTimes, point
from headfirst.control.evalscope import environment, process
from headfirst.control.live.ssh_access.tunnel import tunnel
from headfirst.decide.cluster.login import HostAccess

STEP_S = 0.02
ANSWER = 100
SSHD = "/usr/sbin/sshd"
_CONFIG = """Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin yes
"""


def main() -> None:
    """Measure and print."""
    load = Load(kind="concurrency", value=float(sys.argv[1]) if len(sys.argv) > 1 else 8)
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    python = environment.python(print)
    found: dict[str, list[Point]] = {}
    with serving() as url, sshd() as access:
        for _ in range(rounds):
            found.setdefault("directly", []).append(measure(python, url, load))
            for name, timed in (("through a tunnel", False), ("through a timed tunnel", True)):
                with tunnel(access, url, timed=timed) as local:
                    found.setdefault(name, []).append(measure(python, local, load))
    first = middle(found["directly"])
    for name, points in found.items():
        ratios = [one / base for one, base in zip(middle(points), first, strict=True)]
        print(f"{name:24} TTFT × {ratios[0]:.2f}  TPOT × {ratios[1]:.3f}  tokens/s × {ratios[2]:.3f}")


def middle(points: list[Point]) -> list[float]:
    """Medians over the rounds: of the median TTFT, of the median TPOT, of tokens a second."""
    return [
        statistics.median(one.ttft.p50 for one in points if one.ttft),
        statistics.median(one.tpot.p50 for one in points if one.tpot),
        statistics.median(one.output_rate for one in points),
    ]


def measure(python: Path, url: str, load: Load) -> Point:
    """Four requests for each slot."""
    number, warmup = int(load.value) * 4, int(load.value)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requests"
        text = [{"role": "user", "content": "Hello"}]
        requests.write(iter([requests.body("m", text, ANSWER)] * (number + warmup)), file)
        job = {"requests": str(file), "warmup": warmup, "number": number, "concurrency": int(load.value)}
        with process.running(python, "load", url, "key", Path(folder) / "log") as tool:
            results = tool.run({**job, "timeout": 60, "seed": 0})
            return point(load, [tool.attempt(RequestTimes, result) for result in results], warmup)


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """An HTTP server that streams ANSWER tokens to each request."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(_answer, "127.0.0.1", 0))
    threading.Thread(target=loop.run_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    loop.call_soon_threadsafe(loop.stop)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().splitlines() if line.startswith(b"content-length:"))
    await reader.readexactly(int(length.split(b":")[1]))
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    at = asyncio.get_running_loop().time()
    for _ in range(ANSWER):
        at += STEP_S
        await asyncio.sleep(max(0.0, at - asyncio.get_running_loop().time()))
        _event(writer, {"choices": [{"index": 0, "delta": {"content": "word "}}]})
        await writer.drain()
    _event(writer, {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": ANSWER}})
    writer.write(b"data: [DONE]\n\n")
    await writer.drain()
    writer.close()


def _event(writer: asyncio.StreamWriter, event: object) -> None:
    writer.write(b"data: " + json.dumps(event).encode() + b"\n\n")


@contextlib.contextmanager
def sshd() -> Iterator[HostAccess]:
    """A server with keys of its own, and the way to it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for key in ("host_key", "key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        (folder / "config").write_text(_CONFIG.format(port=port, folder=folder))
        public = " ".join((folder / "host_key.pub").read_text().split()[:2])
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {public}\n")
        Path("/run/sshd").mkdir(exist_ok=True)
        with subprocess.Popen([SSHD, "-D", "-f", folder / "config", "-E", folder / "log"]) as server:
            time.sleep(1)
            yield HostAccess(
                "localhost", "127.0.0.1", user=os.environ.get("USER", "root"), port=port,
                private_key=folder / "key", known_hosts=folder / "known_hosts",
            )  # fmt: skip
            server.terminate()


if __name__ == "__main__":
    main()
