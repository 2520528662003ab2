"""The header of a safetensors file: a little-endian u64 length, then that many bytes of JSON.

Format: README of the safetensors project. Only headers are read here, never tensors.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from headfirst.errors import NotReadyError
from headfirst.model.checkpoint import ELEMENT_BYTES

PREFIX_BYTES = 8
# The format's own limit; a larger number means that this is no safetensors file.
MAX_HEADER_BYTES = 100_000_000
SCALE_SUFFIX = "_scale_inv"


@dataclass(frozen=True)
class Header:
    """What a shard's header says: bytes by dtype name, bytes of FP8 scales, tensor names, and the size of
    the whole file that follows from it."""

    bytes_by_dtype: dict[str, int]
    scale_bytes: int
    names: tuple[str, ...]
    file_bytes: int


def header_length(prefix: bytes, *, where: str) -> int:
    """Length in bytes of the JSON after the first eight bytes; NotReadyError if it cannot be one."""
    length = int.from_bytes(prefix, "little")
    if len(prefix) < PREFIX_BYTES or not 2 <= length <= MAX_HEADER_BYTES:
        raise _damaged("it does not begin like a safetensors file", where)
    return length


def parse(text: bytes, *, where: str) -> Header:
    """Read the JSON part; NotReadyError naming `where` when it is damaged or has an unknown dtype."""
    try:
        entries = json.loads(text)
    except ValueError:
        raise _damaged("its header is cut off or damaged", where) from None
    sizes: Counter[str] = Counter()
    scales, end, names = 0, 0, []
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        try:
            begin, stop = entry["data_offsets"]
            dtype = entry["dtype"]
        except (KeyError, TypeError, ValueError):
            raise _damaged(f"its header describes {name!r} incompletely", where) from None
        if dtype not in ELEMENT_BYTES:
            raise NotReadyError(
                f"{name!r} has the dtype {dtype}, which is not supported.",
                where=where,
                hint="Use a checkpoint in BF16, FP16, FP8 (E4M3) or INT8.",
            )
        names.append(name)
        sizes[dtype] += stop - begin
        end = max(end, stop)
        if name.endswith(SCALE_SUFFIX):
            scales += stop - begin
    return Header(dict(sizes), scales, tuple(names), PREFIX_BYTES + len(text) + end)


def total(headers: Iterable[Header]) -> tuple[dict[str, int], int]:
    """(bytes by dtype, bytes of FP8 scales) of all shards together."""
    sizes: Counter[str] = Counter()
    scales = 0
    for header in headers:
        sizes.update(header.bytes_by_dtype)
        scales += header.scale_bytes
    return dict(sizes), scales


def _damaged(how: str, where: str) -> NotReadyError:
    return NotReadyError(
        f"The shard cannot be read: {how}.",
        where=where,
        hint="Delete this file and fetch it again; corrupt downloads are common.",
    )
