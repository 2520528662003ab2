"""Log files and standard input, read in blocks of whole lines, so that their size does not matter."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

from headfirst.common.errors import InputError
from headfirst.decide.diagnose.logs import LogFile

STDIN = "-"
BLOCK_BYTES = 1 << 20
# gzip, zstd, xz, bzip2; UTF-16, as PowerShell writes it
_NO_TEXT = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"\xff\xfe", b"\xfe\xff")


def read(name: str) -> LogFile:
    """A log. InputError where it cannot be read, is empty, or is no text."""
    log = LogFile("standard input" if name == STDIN else name)
    try:
        with nullcontext(sys.stdin.buffer) if name == STDIN else Path(name).open("rb") as file:
            for block in _blocks(file):
                if not log.lines and block.startswith(_NO_TEXT):
                    raise InputError(
                        "the log is compressed, or UTF-16",
                        where=log.name,
                        hint="Convert it: gunzip -c FILE | deploy diagnose --log -",
                    )
                log.block(block)
    except OSError as error:
        raise InputError(f"the log cannot be read: {error.strerror}", where=name) from None
    if not log.lines:
        raise InputError("the log is empty", where=log.name)
    return log


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """The file in blocks that end at the end of a line; of a line longer than a block the beginning."""
    rest = b""
    while data := file.read(BLOCK_BYTES):
        block, newline, rest = (rest + data).rpartition(b"\n")
        if newline:
            yield block + newline
        rest = rest[:BLOCK_BYTES]
    if rest:
        yield rest
