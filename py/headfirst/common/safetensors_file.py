"""The safetensors container: the one reader of a shard and its header, and the layout of a new shard.

Format: u64 little-endian length of the JSON header, the header, then the tensors' bytes without gaps
(https://huggingface.co/docs/safetensors/index#format). A header comes from a hub, a node or a model folder:
what breaks the format in any way is an UntrustedError. The node tools ship this module too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import (
    UntrustedError,
    integer,
    json_document,
    json_object,
    line,
    shown,
)

# In the order of the safetensors library's own enumeration: it lays tensors out by this rank, largest first.
DTYPE_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
SMALL_FLOATS = tuple(name for name, bits in DTYPE_BITS.items() if name.startswith("F") and bits <= 8)
"""Dtypes that quantised weights and their scales alone have."""
_RANK = {name: rank for rank, name in enumerate(DTYPE_BITS)}
LENGTH_BYTES = 8
HEADER_LIMIT = 100_000_000  # the format's own
_HEADER_DEPTH = 3  # the header, a tensor, its shape
_DIMENSIONS = 32
_MOST_VALUES = 2**63
_REFETCH = "Delete this file and fetch it again; corrupt downloads are common."


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a shard; `start` and `end` are byte offsets from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class SafetensorsFile:
    """A safetensors file whose header was read and whose size agrees with it (`size` in bytes)."""

    path: Path
    size: int
    tensors: Mapping[str, StoredTensor]


def read_shard(path: Path) -> SafetensorsFile:
    """Read and check the header of `path`.

    Raises NotReadyError, naming the file, where it is truncated or breaks the format in any way.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length_field = file.read(LENGTH_BYTES)
        if len(length_field) < LENGTH_BYTES:
            raise _truncated(path, LENGTH_BYTES, size)
        try:
            data_start = LENGTH_BYTES + header_length(length_field)
            if data_start > size:
                raise _truncated(path, data_start, size)
            tensors = read_header(file.read(data_start - LENGTH_BYTES), data_start)
        except UntrustedError as error:
            raise _malformed(path, error.what) from None
    end = max((tensor.end for tensor in tensors), default=data_start)
    if end != size:
        raise _truncated(path, end, size)
    return SafetensorsFile(path, size, {tensor.name: tensor for tensor in tensors})


def header_length(prefix: bytes) -> int:
    """Length in bytes of the JSON after the file's first eight bytes; UntrustedError if it cannot be one."""
    length = int.from_bytes(prefix, "little")
    if len(prefix) < LENGTH_BYTES:
        raise UntrustedError("it has fewer than 8 bytes")
    if not 2 <= length <= HEADER_LIMIT:
        raise UntrustedError(f"its header has {length} bytes, and the format allows {HEADER_LIMIT}")
    return length


def read_header(raw: bytes, data_start: int) -> list[StoredTensor]:
    """The tensors that the header `raw` describes; UntrustedError where it breaks the format in any way."""
    if not raw.startswith(b"{"):
        raise UntrustedError("its header does not start with {")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise UntrustedError("its header is not UTF-8") from None
    parsed = json_document(text, what="its header", limit=HEADER_LIMIT, depth=_HEADER_DEPTH)
    document = json_object(parsed, what="its header")
    metadata = document.pop("__metadata__", None)  # the format's own reader takes null for none, too
    if metadata is not None and not all(
        isinstance(value, str) for value in json_object(metadata, what="__metadata__").values()
    ):
        raise UntrustedError("__metadata__ has a value that is not text")
    tensors = [_tensor(name, entry, data_start) for name, entry in document.items()]
    _refuse_gaps(tensors, data_start)
    return tensors


def _tensor(name: str, entry: object, data_start: int) -> StoredTensor:
    what = f"tensor {line(name, what='a tensor name')}"
    fields = json_object(entry, what=what)
    if fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise UntrustedError(f"{what} has other fields than dtype, shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise UntrustedError(f"{what} is of the unknown type {shown(repr(dtype))}")
    if not isinstance(shape, list) or not isinstance(offsets, list) or len(offsets) != 2:
        raise UntrustedError(f"{what} has no list as shape, or no two data_offsets")
    sizes = tuple(integer(size, what=f"a dimension of {what}") for size in shape[: _DIMENSIONS + 1])
    if len(sizes) > _DIMENSIONS or prod(size or 1 for size in sizes) > _MOST_VALUES:
        raise UntrustedError(f"{what} has a shape that is too large: {shown(str(shape[:_DIMENSIONS]))}")
    start, end = (integer(offset, what=f"an offset of {what}") for offset in offsets)
    if start > end:
        raise UntrustedError(f"{what} ends before it starts: {start} to {end}")
    if (end - start) * 8 != prod(sizes) * DTYPE_BITS[dtype]:
        raise UntrustedError(
            f"{what} has {end - start} bytes, which its shape {shown(str(shape))} and type {dtype} "
            "do not give"
        )
    return StoredTensor(name, dtype, sizes, data_start + start, data_start + end)


def _refuse_gaps(tensors: Iterable[StoredTensor], data_start: int) -> None:
    """UntrustedError where tensors overlap or leave a hole."""
    end = data_start
    for tensor in sorted(tensors, key=lambda tensor: (tensor.start, tensor.end)):
        if tensor.start != end:
            word = "overlaps the one before it" if tensor.start < end else "leaves a gap before it"
            raise UntrustedError(f"tensor {shown(tensor.name)} {word}")
        end = tensor.end


def layout(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> tuple[bytes, list[StoredTensor], int]:
    """Lay out a new shard from (name, dtype, shape).

    Returns the length field with the padded header, the tensors in file order, and the file's size in bytes:
    the same bytes that safetensors' own `save_file(…, metadata={"format": "pt"})` would write.
    """
    ordered = sorted(tensors, key=lambda item: (-_RANK[item[1]], item[0]))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    spans = []
    offset = 0
    for name, dtype, shape in ordered:
        end = offset + prod(shape) * DTYPE_BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        spans.append((offset, end))
        offset = end
    raw = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    raw += b" " * (-len(raw) % 8)
    data_start = LENGTH_BYTES + len(raw)
    placed = [
        StoredTensor(name, dtype, shape, data_start + start, data_start + end)
        for (name, dtype, shape), (start, end) in zip(ordered, spans, strict=True)
    ]
    return len(raw).to_bytes(LENGTH_BYTES, "little") + raw, placed, data_start + offset


def _malformed(path: Path, why: str) -> NotReadyError:
    return NotReadyError(f"{path.name} is not a safetensors file: {why}", where=str(path), hint=_REFETCH)


def _truncated(path: Path, expected: int, actual: int) -> NotReadyError:
    word = "truncated" if actual < expected else "longer than its header declares"
    return NotReadyError(
        f"shard {path.name} is {word}: expected {expected} bytes, found {actual}",
        where=str(path),
        hint=_REFETCH,
    )
