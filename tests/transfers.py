"""What the tests of transfers share: members on loopback addresses, each a process of `headfirst-weights`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from forked import Forked
from headfirst.node.weights.cli import __file__ as cli_file
from headfirst.node.weights.transfer.signing import Key

LIMIT_S = 60
MAIN = "from headfirst.node.weights.cli import main; main()"


@dataclass
class Members:
    """`count` members below `folder`, each with the folders `fp8` and `bf16`."""

    folder: Path
    count: int
    port: int = field(default_factory=lambda: 20_000 + os.getpid() % 2000 * 10)
    token: str = "t0ken"

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.7.{index + 1}" for index in range(self.count)]

    def home(self, index: int) -> Path:
        return self.folder / f"member{index}"

    def start(self, index: int, arguments: Sequence[str], **environment: str) -> subprocess.Popen[str]:
        """One member; `@` in an argument is its own folder."""
        home = self.home(index)
        home.mkdir(parents=True, exist_ok=True)
        variables = {
            "HEADFIRST_RESULT_FILE": str(home / "result.json"),
            "HEADFIRST_PROGRESS_FILE": str(home / "progress.json"),
        }
        return self.spawn(
            index,
            self.command(index, arguments),
            os.environ | self.environment | variables | environment,
        )

    def command(self, index: int, arguments: Sequence[str]) -> list[str]:
        """The command of a member, with `@` as for `start`."""
        argv = [sys.executable, "-c", MAIN, "pipeline"]
        argv += [argument.replace("@", str(self.home(index))) for argument in arguments]
        argv += ["--address", self.addresses[index], "--port", str(self.port)]
        argv += [word for address in self.addresses for word in ("--member", address)]
        return argv + signing(self.folder, index)

    @property
    def environment(self) -> dict[str, str]:
        """What each command needs."""
        return {
            "PYTHONPATH": str(Path(cli_file).parents[2]),
            "HEADFIRST_TRANSFER_TOKEN": self.token,
        }

    def spawn(self, index: int, argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        """Run `argv` on one member; its errors are kept."""
        if list(argv[:3]) == [sys.executable, "-c", MAIN]:
            return cast(subprocess.Popen[str], Forked(argv[3:], environment))
        return subprocess.Popen(
            argv, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )

    def result(self, index: int) -> dict[str, Any]:
        return dict(json.loads((self.home(index) / "result.json").read_text()))

    def run(self, *arguments: str) -> list[dict[str, Any]]:
        """All members at once, to their end; their results."""
        for code, errors in outcomes(self.start(index, arguments) for index in range(self.count)):
            assert code == 0, errors
        return [self.result(index) for index in range(self.count)]


def signing(folder: Path, index: int) -> list[str]:
    """Arguments of a member: the public key, and for the head the file with its key, in `folder`."""
    file = folder / "signing.key"
    signed_by = ["--signed-by", Key.of_file(file, make=True).public]
    return [*signed_by, "--signing-key", str(file)] if index == 0 else signed_by


def outcomes(processes: Iterator[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """The exit code and the errors of each, once all have ended."""
    with ended(processes) as started:
        errors = [process.communicate(timeout=LIMIT_S)[1] for process in started]
        return [(process.returncode, text) for process, text in zip(started, errors, strict=True)]


@contextmanager
def ended(processes: Iterator[subprocess.Popen[str]]) -> Iterator[list[subprocess.Popen[str]]]:
    """Whatever happens, none of them is left behind."""
    started = list(processes)
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()
