"""Nodes on a shaped LAN, with shaped lines to a hub; runs commands there and counts their cost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from netns import Lan, _ip

HUB, LARGE_FILES, NODES = "10.98.0.1", "10.98.0.2", "10.98.0.{}"
PORT = 8080
MODEL = "team/model"
PACKAGE = str(Path(__file__).parents[1] / "py")
WEIGHTS = [sys.executable, "-c", "from headfirst.node.weights.cli import main; main()"]


@dataclass(frozen=True)
class Cost:
    """What a stage took: `cpu` seconds of its processes, `peak` bytes of the largest one's memory, `sent`
    bytes on the head's link to the LAN, `load` of the whole machine (1 minute) when it ended."""

    seconds: float
    cpu: float
    peak: int
    sent: int
    load: float

    def __add__(self, other: Cost) -> Cost:
        """One after the other."""
        return Cost(
            self.seconds + other.seconds,
            self.cpu + other.cpu,
            max(self.peak, other.peak),
            self.sent + other.sent,
            other.load,
        )


class Site(Lan):
    """A LAN of `nodes`; the first `lines` of them have a line of `line_rate` to HUB, or share one."""

    def __init__(
        self,
        nodes: int,
        lan_rate: str,
        line_rate: str,
        folder: Path,
        limit_s: float,
        *,
        lines: int = 1,
        shared: bool = False,
    ) -> None:
        super().__init__(nodes, lan_rate)
        self._line_rate = line_rate
        self._lines = lines
        self._shared = shared
        self._uplink = f"hf{os.getpid()}-uplink"
        self._hub = f"hf{os.getpid()}-hub"
        self._folder = folder
        self._limit_s = limit_s
        self._hub_process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Site:
        super().__enter__()
        try:
            self._add_lines()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End and remove everything; can be called again."""
        super().close()
        if self._hub_process and self._hub_process.poll() is None:
            self._hub_process.kill()
            self._hub_process.wait()
        for name in (self._hub, self._uplink):
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)

    def serve(self, folder: Path) -> None:
        """Start the hub and wait until it answers."""
        argv = [sys.executable, str(Path(__file__).with_name("hub_server.py")), str(folder), MODEL]
        command = ["nsenter", f"--net=/run/netns/{self._hub}", *argv, LARGE_FILES, str(PORT)]
        self._hub_process = subprocess.Popen(command)
        asking = f"import socket; socket.create_connection(({HUB!r}, {PORT}), 1)"
        deadline = time.monotonic() + 60
        while self.run(0, [sys.executable, "-c", asking], stderr=subprocess.DEVNULL).wait(10):
            if time.monotonic() > deadline or self._hub_process.poll() is not None:
                raise SystemExit("the hub's server does not answer")
            time.sleep(0.2)

    def measure(self, commands: Mapping[int, Sequence[str]]) -> Cost:
        """Run a command on each of the nodes at once, to their end; SystemExit where one fails."""
        sent, start = self._sent(), time.monotonic()
        running = {index: self.start(index, argv) for index, argv in commands.items()}
        cpu, peak = 0.0, 0
        deadline = start + self._limit_s
        while running:
            for index, process in list(running.items()):
                pid, status, used = os.wait4(process.pid, os.WNOHANG)
                if not pid:
                    continue
                process.returncode = os.waitstatus_to_exitcode(status)
                if process.returncode:
                    raise SystemExit(f"node {index} failed:\n{self._log(index).read_text()[-2000:]}")
                del running[index]
                cpu += used.ru_utime + used.ru_stime
                peak = max(peak, used.ru_maxrss * 1024)
            if time.monotonic() > deadline:
                raise SystemExit(f"not done after {self._limit_s:.0f} s: nodes {sorted(running)}")
            time.sleep(0.01)
        seconds = time.monotonic() - start
        return Cost(seconds, cpu, peak, self._sent() - sent, os.getloadavg()[0])

    def start(self, index: int, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a command on a node, with its log in the node's folder."""
        home = self.home(index)
        home.mkdir(exist_ok=True)
        variables = {
            "PYTHONPATH": PACKAGE,
            "PYTHONPYCACHEPREFIX": str(self._folder / "pyc"),  # compiled once, as on a node
            "PYTHONDONTWRITEBYTECODE": "",
            "HF_ENDPOINT": f"http://{HUB}:{PORT}",
            "HF_HOME": str(home / "hf"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": f"{HUB},{LARGE_FILES}",
            "HEADFIRST_TRANSFER_TOKEN": "benchmark",
            "HEADFIRST_PROGRESS_FILE": str(home / "progress.json"),
        }
        with self._log(index).open("ab") as log:
            return self.run(index, argv, env=os.environ | variables, stdout=log, stderr=log)

    def home(self, index: int) -> Path:
        """A node's folder."""
        return self._folder / f"node{index}"

    def _log(self, index: int) -> Path:
        return self.home(index) / "log"

    def _sent(self) -> int:
        """Bytes that left the head towards the LAN so far."""
        shown = ["nsenter", f"--net=/run/netns/{self._nodes[0]}", "cat", "/proc/net/dev"]
        lines = subprocess.run(shown, check=True, capture_output=True, text=True).stdout.splitlines()
        return next(int(line.split()[9]) for line in lines if line.strip().startswith("eth0:"))

    def _add_lines(self) -> None:
        for namespace in (self._hub, self._uplink):
            _ip("netns", "add", namespace)
        _ip("-n", self._uplink, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", self._uplink, "link", "set", "bridge0", "up")
        self._add_line(self._hub, "hub", [HUB, LARGE_FILES], shaped=self._shared)
        for index in range(self._lines):
            self._add_line(
                self._nodes[index], f"line{index}", [NODES.format(3 + index)], shaped=not self._shared
            )

    def _add_line(self, namespace: str, port: str, addresses: Sequence[str], *, shaped: bool) -> None:
        _ip("-n", self._uplink, "link", "add", port, "type", "veth", "peer", "line", "netns", namespace)
        _ip("-n", self._uplink, "link", "set", port, "master", "bridge0", "up")
        for address in addresses:
            _ip("-n", namespace, "address", "add", f"{address}/24", "dev", "line")
        _ip("-n", namespace, "link", "set", "line", "up")
        for place, device in ((namespace, "line"), (self._uplink, port)) if shaped else ():
            shape = ["root", "tbf", "rate", self._line_rate, "burst", "128kb", "latency", "20ms"]
            subprocess.run(["tc", "-n", place, "qdisc", "add", "dev", device, *shape], check=True)


def end_on_sigterm() -> None:
    """Let SIGTERM unwind contexts, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
