"""Ways to bring a folder of the first node of a shaped LAN to all others; each returns when all have it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from headfirst.node.weights.proof.manifest import MANIFEST
from netns import Lan
from transfers import signing

PORT = 7600
_READY_SECONDS = 3.0  # in which sixteen Python processes start on two cores
_CLI = [sys.executable, "-c", "from headfirst.node.weights.cli import main; main()"]
_ENV = {
    **os.environ,
    "HEADFIRST_TRANSFER_TOKEN": "benchmark",
    "PYTHONPATH": str(Path(__file__).parents[1] / "py"),
}


class Broadcast:
    """`folders[0]` holds the checkpoint; `deadline` in seconds of the monotonic clock."""

    needs = ""
    """The program without which this cannot be measured."""

    def __init__(self, lan: Lan, folders: list[Path], deadline: float) -> None:
        self.lan = lan
        self.folders = folders
        self.deadline = deadline

    def prepare(self) -> None:
        """Start what waits for the first byte."""

    def run(self) -> None:
        """From here on the time counts. TimeoutError at the deadline."""
        raise NotImplementedError

    def start(self, node: int, *argv: str, **options: object) -> subprocess.Popen[bytes]:
        return self.lan.run(node, argv, env=_ENV, stdout=subprocess.DEVNULL, **options)

    def shell(self, node: int, script: str) -> subprocess.Popen[bytes]:
        return self.start(node, "bash", "-o", "pipefail", "-c", script)

    def finish(self, *processes: subprocess.Popen[bytes]) -> None:
        for process in processes:
            try:
                code = process.wait(max(0.0, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise TimeoutError from None
            if code:
                raise subprocess.CalledProcessError(code, process.args)


class Headfirst(Broadcast):
    """Our pipeline, from the start of the origin until every node has proven its copy and said so on disk."""

    options: tuple[str, ...] = ()

    def prepare(self) -> None:
        subprocess.run(
            [*_CLI, "manifest", str(self.folders[0])], env=_ENV, check=True, stdout=subprocess.DEVNULL
        )
        self._nodes = [self._node(index) for index in range(len(self.folders) - 1, 0, -1)]
        time.sleep(_READY_SECONDS)

    def run(self) -> None:
        self._nodes.append(self._node(0))
        waiting = self.folders[1:]
        while waiting:
            if time.monotonic() > self.deadline:
                raise TimeoutError
            if codes := [node.returncode for node in self._nodes if node.poll()]:
                raise RuntimeError(f"a node ended with {codes}")
            waiting = [folder for folder in waiting if not (folder / MANIFEST).exists()]
            time.sleep(0.01)

    def _node(self, index: int) -> subprocess.Popen[bytes]:
        members = [f"--member={address}" for address in self.lan.addresses]
        own = ["--address", self.lan.addresses[index], "--port", str(PORT), *self.options]
        own += signing(self.folders[0].parent, index)
        return self.start(index, *_CLI, "pipeline", str(self.folders[index]), *members, *own)


class HeadfirstEncrypted(Headfirst):
    """The same with `weights_encrypt`."""

    options = ("--encrypt",)


class RsyncOneByOne(Broadcast):
    """Each node pulls from an rsync daemon on the first, when the node before it is done."""

    needs = "rsync"

    def prepare(self) -> None:
        config = self.folders[0].parent / "rsyncd.conf"
        config.write_text(f"use chroot = no\nuid = 0\n[model]\npath = {self.folders[0]}\nread only = yes\n")
        self.start(0, "rsync", "--daemon", "--no-detach", f"--config={config}", f"--port={PORT}")
        time.sleep(0.5)

    def run(self) -> None:
        for node in range(1, len(self.folders)):
            self.finish(self._pull(node))

    def _pull(self, node: int) -> subprocess.Popen[bytes]:
        source = f"rsync://{self.lan.addresses[0]}:{PORT}/model/"
        return self.start(node, "rsync", "-a", "--whole-file", source, f"{self.folders[node]}/")


class RsyncAllAtOnce(RsyncOneByOne):
    """All nodes pull at the same time."""

    def run(self) -> None:
        self.finish(*(self._pull(node) for node in range(1, len(self.folders))))


class SocatChain(Broadcast):
    """tar, and on each node tee to the next: nothing is proven, nothing can be continued."""

    needs = "socat"
    receive = "socat -u -b 262144 TCP-LISTEN:{port} -"
    relay = receive + " | tee >(socat -u -b 262144 - TCP:{next}:{port},retry=50,interval=0.1)"
    send = "socat -u -b 262144 - TCP:{next}:{port},retry=50,interval=0.1"

    def prepare(self) -> None:
        last = len(self.folders) - 1
        self._nodes = []
        for node in range(last, 0, -1):
            how = self.receive if node == last else self.relay
            unpack = f"tar -xf - -C {shlex.quote(str(self.folders[node]))}"
            self._nodes.append(self.shell(node, f"{self._words(how, node)} | {unpack}"))
        time.sleep(1.0)

    def run(self) -> None:
        pack = f"tar -cf - -C {shlex.quote(str(self.folders[0]))} ."
        self.finish(self.shell(0, f"{pack} | {self._words(self.send, 0)}"), *self._nodes)

    def _words(self, text: str, node: int) -> str:
        following = self.lan.addresses[(node + 1) % len(self.folders)]
        return text.format(port=PORT, next=following)


class MbufferChain(SocatChain):
    """The same with mbuffer, which sends to the next node and to tar."""

    needs = "mbuffer"
    receive = "mbuffer -q -m 32M -I {port} 2>/dev/null"
    relay = "mbuffer -q -m 32M -I {port} -O {next}:{port} -o - 2>/dev/null"
    send = "mbuffer -q -m 32M -O {next}:{port} 2>/dev/null"


TOOLS: dict[str, type[Broadcast]] = {
    "headfirst": Headfirst,
    "headfirst, encrypted": HeadfirstEncrypted,
    "rsync, one by one": RsyncOneByOne,
    "rsync, all at once": RsyncAllAtOnce,
    "socat chain (unproven)": SocatChain,
    "mbuffer chain (unproven)": MbufferChain,
}
