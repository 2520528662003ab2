"""A LAN on this machine: network namespaces on one switch, links shaped in both directions. Needs root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from types import TracebackType

_BURST = (
    "128kb"  # two GSO packets, 3 ms at 400 Mbit/s; with less the kernel must split them, at 10 times the CPU
)
_QUEUE = "20ms"  # what a switch's port holds at most


class Lan:
    """`addresses` of `nodes` namespaces, each with a link of `rate` (as tc writes it; None: unshaped).

    Leaving the context ends what `run` started and removes everything.
    """

    def __init__(self, nodes: int, rate: str | None) -> None:
        self.rate = rate
        self.addresses = [f"10.99.0.{number}" for number in range(1, nodes + 1)]
        self._switch = f"hf{os.getpid()}-switch"
        self._nodes = [f"hf{os.getpid()}-{number}" for number in range(1, nodes + 1)]
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Lan:
        try:
            _ip("netns", "add", self._switch)
            _ip("-n", self._switch, "link", "add", "bridge0", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "bridge0", "up")
            for index in range(len(self._nodes)):
                self._plug(index)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def namespace(self, index: int) -> str:
        """The file that stands for the network of node `index` (from 0)."""
        return f"/run/netns/{self._nodes[index]}"

    def run(self, index: int, argv: Sequence[str], **options: object) -> subprocess.Popen[bytes]:
        """Start `argv` on node `index` (from 0); `options` are Popen's. Its pid is the program's own."""
        command = ["nsenter", f"--net={self.namespace(index)}", *argv]
        process = subprocess.Popen(command, **options)  # type: ignore[call-overload]
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End and remove everything; can be called again."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        self._processes.clear()
        for name in [*self._nodes, self._switch]:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)

    def _plug(self, index: int) -> None:
        node, port = self._nodes[index], f"port{index + 1}"
        _ip("netns", "add", node)
        _ip("-n", self._switch, "link", "add", port, "type", "veth", "peer", "eth0", "netns", node)
        _ip("-n", self._switch, "link", "set", port, "master", "bridge0", "up")
        _ip("-n", node, "link", "set", "lo", "up")
        _ip("-n", node, "address", "add", f"{self.addresses[index]}/24", "dev", "eth0")
        _ip("-n", node, "link", "set", "eth0", "up")
        for namespace, device in ((node, "eth0"), (self._switch, port)) if self.rate else ():
            shape = ["root", "tbf", "rate", self.rate, "burst", _BURST, "latency", _QUEUE]
            subprocess.run(["tc", "-n", namespace, "qdisc", "add", "dev", device, *shape], check=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
