"""Members of a transfer on a LAN of network namespaces, the bytes on their wires counted."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from netns import Lan
from transfers import Members

MB = 1_000_000
SHARDS, SHARD = 10, 10 * MB
IN_FLIGHT = 2 * SHARD
"""What a node receives at a time."""
HEADERS = 1.01
"""Bytes on a wire to one byte of payload, at most."""
LIMIT_S = 90
SILENCE_S = 60.0
"""As in the product: a loaded machine takes longer than ten seconds to start a member again."""
MAIN = """\
import os, time
right, wrong_by = time.time_ns, int(float(os.environ["CLOCK_WRONG_BY_S"]) * 1e9)
time.time_ns = lambda: right() + wrong_by
time.time = lambda: time.time_ns() / 1e9
from headfirst.node.weights import pipeline
from headfirst.node.weights.cli import main
pipeline._SILENCE_S = float(os.environ["SILENCE_S"])
main()
"""
_CLONE_NEWNET = 0x4000_0000


@dataclass
class LanMembers(Members):
    """Members with real links. By a member's index: what its command is run `under`; how wrong its clock is.

    Those that are done wait `silence_s` seconds for one that sends nothing. (libfaketime would break
    clock_nanosleep, which Python sleeps by.)
    """

    lan: Lan = field(kw_only=True)
    under: dict[int, Sequence[str]] = field(default_factory=dict)
    clock_wrong_by_s: dict[int, float] = field(default_factory=dict)
    silence_s: float = SILENCE_S
    running: dict[int, subprocess.Popen[str]] = field(default_factory=dict)

    @property
    def addresses(self) -> list[str]:
        return self.lan.addresses[: self.count]

    def spawn(self, index: int, argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        """As in the base, in the member's namespace."""
        for report in ("result.json", "progress.json"):
            (self.home(index) / report).unlink(missing_ok=True)
        program, option, _, *arguments = argv
        command = [*self.under.get(index, ()), program, option, MAIN, *arguments]
        times = {
            "CLOCK_WRONG_BY_S": str(self.clock_wrong_by_s.get(index, 0)),
            "SILENCE_S": str(self.silence_s),
        }
        self.running[index] = self.lan.run(
            index,
            command,
            env={**environment, **times},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        return self.running[index]

    def start_all(self, arguments: Sequence[str], **environment: str) -> None:
        for index in range(self.count):
            self.start(index, arguments, **environment)

    def kill(self, index: int, how: signal.Signals = signal.SIGKILL) -> None:
        self.running[index].send_signal(how)
        self.running[index].wait(LIMIT_S)

    def kill_and_run_again(self, index: int, arguments: Sequence[str]) -> None:
        """Kill a member and start it again, and whoever ends before it takes part, as the next `up` does.

        Members that heard that it was done do not wait for it.
        """
        self.kill(index)
        self.start(index, arguments)
        deadline = time.monotonic() + LIMIT_S
        while not self.done(index) and not self.has_ended(index):
            assert time.monotonic() < deadline, f"member {index} does not take part"
            for other in self.running.keys() - {index}:
                if self.has_ended(other):
                    self.end(other)
                    self.start(other, arguments)
            time.sleep(0.02)

    def has_ended(self, index: int) -> bool:
        return self.running[index].poll() is not None

    def end(self, index: int, code: int = 0) -> str:
        """Wait until a member has ended by itself with `code`; its errors."""
        _, errors = self.running[index].communicate(timeout=LIMIT_S)
        assert self.running[index].returncode == code, f"member {index}: {errors}"
        return errors

    def end_all(self, but: Sequence[int] = ()) -> None:
        for index in set(range(self.count)) - set(but):
            self.end(index)

    def digests(self, but: Sequence[int] = ()) -> set[object]:
        return {self.result(index)["digest"] for index in set(range(self.count)) - set(but)}

    def done(self, index: int) -> int:
        """Bytes that a member reports as done."""
        path = self.home(index) / "progress.json"
        return int(json.loads(path.read_text())["done"]) if path.exists() else 0

    def await_done(self, index: int, size: float) -> None:
        """Wait until a member reports `size` bytes."""
        self.await_that(lambda: self.done(index) >= size, index)

    def await_that(self, happened: Callable[[], object], index: int) -> None:
        """Wait for something to happen while member `index` runs."""
        deadline = time.monotonic() + LIMIT_S
        while not happened():
            process = self.running[index]
            assert process.poll() is None, f"member {index} has ended: {process.communicate()[1]}"
            assert time.monotonic() < deadline, f"member {index} reports {self.done(index)} bytes"
            time.sleep(0.02)

    def wire(self, index: int) -> tuple[int, int]:
        """Bytes that a member has received and sent since the LAN exists, with all headers."""
        look = self.lan.run(index, ["ip", "-j", "-s", "link", "show", "eth0"], stdout=subprocess.PIPE)
        [link] = json.loads(look.communicate()[0])
        return link["stats64"]["rx"]["bytes"], link["stats64"]["tx"]["bytes"]


def fetching(source: Path) -> list[str]:
    return ["@/fp8", "--model", str(source), "--from", "path"]


@contextmanager
def counted(members: LanMembers) -> Iterator[list[tuple[int, int]]]:
    """What each member's wire has received and sent within the block; filled in when it ends."""
    before = [members.wire(index) for index in range(members.count)]
    counts: list[tuple[int, int]] = []
    yield counts
    after = [members.wire(index) for index in range(members.count)]
    counts += [(rx1 - rx0, tx1 - tx0) for (rx0, tx0), (rx1, tx1) in zip(before, after, strict=True)]


@contextmanager
def network_of(lan: Lan, index: int) -> Iterator[None]:
    """Sockets that this thread makes within the block belong to a node."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open() as own, Path(lan.namespace(index)).open() as other:
        _enter(libc, other.fileno())
        try:
            yield
        finally:
            _enter(libc, own.fileno())


def _enter(libc: ctypes.CDLL, namespace: int) -> None:
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A disk of `size` bytes at `folder`."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(path: Path, *, leaving: int) -> None:
    """Fill the disk with a file, up to `leaving` bytes."""
    stat = os.statvfs(path.parent)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, stat.f_bavail * stat.f_frsize - leaving)
