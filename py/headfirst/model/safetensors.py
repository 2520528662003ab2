"""The header of a safetensors file: a little-endian u64 length, then that many bytes of JSON.

Format: README of the safetensors project. Only headers are read here, never tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from headfirst.errors import NotReadyError
from headfirst.model.checkpoint import ELEMENT_BYTES
from headfirst.untrusted import UntrustedError, shown
from headfirst.weights.safetensors_io import HEADER_LIMIT, LENGTH_BYTES, read_header

PREFIX_BYTES = LENGTH_BYTES
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
    if len(prefix) < PREFIX_BYTES or not 2 <= length <= HEADER_LIMIT:
        raise _damaged("it does not begin like a safetensors file", where)
    return length


def parse(text: bytes, *, where: str) -> Header:
    """Read the JSON part; NotReadyError naming `where` when it breaks the format or has an unknown dtype."""
    begin = PREFIX_BYTES + len(text)
    try:
        tensors = read_header(text, begin)
    except UntrustedError as error:
        raise _damaged(f"its header is cut off or damaged: {error.what}", where) from None
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        if tensor.dtype not in ELEMENT_BYTES:
            raise NotReadyError(
                f"{shown(tensor.name)} has the dtype {tensor.dtype}, which is not supported.",
                where=where,
                hint="Use a checkpoint in BF16, FP16, FP8 (E4M3) or INT8.",
            )
        sizes[tensor.dtype] += tensor.end - tensor.start
    return Header(
        bytes_by_dtype=dict(sizes),
        scale_bytes=sum(one.end - one.start for one in tensors if one.name.endswith(SCALE_SUFFIX)),
        names=tuple(tensor.name for tensor in tensors),
        file_bytes=max((tensor.end for tensor in tensors), default=begin),
    )


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
