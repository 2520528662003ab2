"""What OpenSSH itself does: `ssh -G` resolves its configuration, and ssh goes through jump hosts and proxies.

So keys, ports, Include and Match count as in Ansible's runs, for a jump host, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# What `ssh -G` leaves for the moment of connecting.
_TOKEN = re.compile(r"%([%hnpruCdl])")

Settings = Mapping[str, list[str]]


class BadOptionError(Exception):
    """ssh refuses an option or its configuration; the text is its own."""


def settings(words: Sequence[str]) -> Settings:
    """What ssh does when it is called with these words: values by lowercase name of the option."""
    try:
        done = subprocess.run(["ssh", "-G", *words], capture_output=True, text=True, check=False, timeout=30)
    except FileNotFoundError:
        raise BadOptionError("ssh is not installed on this machine") from None
    if done.returncode != 0:
        raise BadOptionError((done.stderr.strip().splitlines() or ["ssh -G fails"])[-1])
    values: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition(" ")
        values.setdefault(name, []).append(value)
    return values


def value_of(config: Settings, name: str, default: str = "none") -> str:
    """The value of an option that has one."""
    return config.get(name, [default])[0]


def files(config: Settings, name: str, tokens: Mapping[str, str]) -> list[Path]:
    """Paths of an option that takes several, in one line or in several lines."""
    texts = [text for line in config.get(name, []) for text in _split(line) if text != "none"]
    return [Path(expand(text, tokens)).expanduser() for text in texts]


def _split(line: str) -> list[str]:
    """`ssh -G` prints names with spaces unquoted: a line that is a file is one name."""
    return [line] if Path(line).expanduser().exists() else line.split()


def expand(text: str, tokens: Mapping[str, str]) -> str:
    """Put %h, %p, %r and their like in; unknown ones stay."""
    return _TOKEN.sub(lambda match: tokens.get(match.group(1), match.group(0)), text)


# Prints the password from a file; ssh runs it in place of a question on the terminal.
_ASKPASS = """#!/bin/sh
case "$1" in
*assword*) exec cat "$HEADFIRST_ASKPASS_FILE" ;;
esac
exit 1
"""


class SshdSocket(NamedTuple):
    """A socket that leads to the host's sshd; `complaint` gives what the program on the way printed."""

    socket: socket.socket
    complaint: Callable[[], str]


def command(
    config: Settings, options: Sequence[str], target: tuple[str, int], tokens: Mapping[str, str]
) -> list[str]:
    """The program that ssh would start on the way to `target`; empty: there is none."""
    jumps = value_of(config, "proxyjump")
    if jumps != "none":
        *earlier, last = jumps.split(",")
        chain = ["-J", ",".join(earlier)] if earlier else []
        destination = last if "://" in last else f"ssh://{last}"
        return ["ssh", *_config_file(options), *chain, "-W", f"[{target[0]}]:{target[1]}", destination]
    text = value_of(config, "proxycommand")
    return [] if text == "none" else ["/bin/sh", "-c", f"exec {expand(text, tokens)}"]


def _config_file(options: Sequence[str]) -> list[str]:
    """ssh hands its -F on to the ssh of a jump host, and nothing else."""
    for index, word in enumerate(options):
        if word == "-F" and index + 1 < len(options):
            return ["-F", options[index + 1]]
        if word.startswith("-F") and len(word) > 2:
            return [word]
    return []


@contextlib.contextmanager
def open_way(argv: list[str], password: str | None) -> Iterator[SshdSocket]:
    """Start the program; it ends when this closes. A password question is answered with `password`."""
    ours, theirs = socket.socketpair()
    with contextlib.ExitStack() as stack:
        stack.callback(ours.close)
        said = stack.enter_context(tempfile.TemporaryFile())
        asking = stack.enter_context(_askpass(password)) if password else {"SSH_ASKPASS_REQUIRE": "never"}
        env = {**os.environ, **asking}
        with theirs:
            process = subprocess.Popen(
                argv,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=said,
                env=env,
                start_new_session=True,
            )
        stack.callback(_end, process)

        def complaint() -> str:
            said.seek(0)
            return said.read().decode(errors="replace").strip()

        yield SshdSocket(ours, complaint)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _askpass(password: str) -> Iterator[dict[str, str]]:
    """The environment in which ssh runs a program for the password, from a file of this user only."""
    with tempfile.TemporaryDirectory(prefix="headfirst-") as folder:
        program, secret = Path(folder) / "askpass", Path(folder) / "password"
        program.write_text(_ASKPASS)
        program.chmod(0o700)
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(password)
        yield {
            "SSH_ASKPASS": str(program),
            "SSH_ASKPASS_REQUIRE": "force",
            "HEADFIRST_ASKPASS_FILE": str(secret),
        }


def shown(argv: Sequence[str]) -> str:
    """The program for a message."""
    return argv[-1] if argv[0] == "ssh" else shlex.join(argv[-1:])
