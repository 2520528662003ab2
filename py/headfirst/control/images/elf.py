"""Shared libraries without their debugging symbols: triton's is 506 MB as it comes, 192 without.

Needs no binutils: in a linked library all that is loaded is within the program headers' segments, and what
follows the last of them (symbol and section tables, DWARF) is read by debuggers only.
"""

from __future__ import annotations

import struct
from pathlib import Path

_ELF64_LITTLE = b"\x7fELF\x02\x01"
_HEADER_BYTES = 64
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_MIN_GAIN_BYTES = 1 << 20


def stripped(path: Path, size: int) -> tuple[bytes, int] | None:
    """New ELF header and new size in bytes of the library at `path`; None if it is none or gains little."""
    if size < _MIN_GAIN_BYTES:
        return None
    with path.open("rb") as file:
        header = bytearray(file.read(_HEADER_BYTES))
        if not header.startswith(_ELF64_LITTLE):
            return None
        (table,) = struct.unpack_from("<Q", header, 32)
        entry_bytes, entries = struct.unpack_from("<HH", header, 54)
        file.seek(table)
        end = table + entry_bytes * entries
        for _ in range(entries):
            _, _, offset, _, _, in_file, _, _ = _PROGRAM_HEADER.unpack(file.read(entry_bytes))
            end = max(end, offset + in_file)
    if size - end < _MIN_GAIN_BYTES:
        return None
    struct.pack_into("<Q", header, 40, 0)  # e_shoff: no section table
    struct.pack_into("<HHH", header, 58, 0, 0, 0)  # e_shentsize, e_shnum, e_shstrndx
    return bytes(header), end
