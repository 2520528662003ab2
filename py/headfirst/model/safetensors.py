"""The header of a safetensors file: a little-endian u64 length, then that many bytes of JSON.

Format: README of the safetensors project. Only headers are read here, never tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from headfirst.errors import NotReadyError
from headfirst.model.checkpoint import ELEMENT_BYTES
from headfirst.untrusted import UntrustedError, integer, json_document, line, shown

PREFIX_BYTES = 8
# The format's own limit; a larger number means that this is no safetensors file.
MAX_HEADER_BYTES = 100_000_000
_DEPTH = 3  # the header, a tensor, its shape
_MAX_DIMENSIONS = 32
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
    """Read the JSON part; NotReadyError naming `where` when it breaks the format or has an unknown dtype."""
    try:
        return _parse(text, where)
    except UntrustedError as error:
        raise _damaged(f"its header is cut off or damaged: {error.what}", where) from None


def _parse(text: bytes, where: str) -> Header:
    if not text.startswith(b"{"):
        raise UntrustedError("it does not begin with {")
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        raise UntrustedError("it is not UTF-8") from None
    entries = json_document(decoded, what="it", limit=MAX_HEADER_BYTES, depth=_DEPTH)
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise UntrustedError("__metadata__ has a value that is not text")
    sizes: Counter[str] = Counter()
    scales, spans = 0, []
    for name, entry in entries.items():
        dtype, begin, stop = _tensor(line(name, what="the name of a tensor"), entry, where)
        spans.append((begin, stop, name))
        sizes[dtype] += stop - begin
        if name.endswith(SCALE_SUFFIX):
            scales += stop - begin
    end = 0
    for begin, stop, name in sorted(spans):
        if begin != end:
            word = "overlaps the tensor before it" if begin < end else "leaves a hole before it"
            raise UntrustedError(f"{shown(name)} {word}")
        end = stop
    return Header(dict(sizes), scales, tuple(entries), PREFIX_BYTES + len(text) + end)


def _tensor(name: str, entry: object, where: str) -> tuple[str, int, int]:
    """dtype and offsets of one tensor; its bytes are as many as its shape has elements of the dtype."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise UntrustedError(f"it describes {shown(name)} incompletely")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or not isinstance(shape, list) or not isinstance(offsets, list):
        raise UntrustedError(f"it describes {shown(name)} incompletely")
    if dtype not in ELEMENT_BYTES:
        raise NotReadyError(
            f"{shown(repr(name))} has the dtype {shown(dtype)}, which is not supported.",
            where=where,
            hint="Use a checkpoint in BF16, FP16, FP8 (E4M3) or INT8.",
        )
    if len(shape) > _MAX_DIMENSIONS or len(offsets) != 2:
        raise UntrustedError(f"{shown(name)} has too many dimensions, or not two offsets")
    elements = prod(integer(size, what=f"a dimension of {shown(name)}") for size in shape)
    begin, stop = (integer(offset, what=f"an offset of {shown(name)}") for offset in offsets)
    if stop - begin != elements * ELEMENT_BYTES[dtype]:
        raise UntrustedError(f"{shown(name)} has other offsets than its shape and dtype give")
    return dtype, begin, stop


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
