"""The safetensors container: read a shard's header, build the header of a shard that is yet to be written.

Format: u64 little-endian length of the JSON header, the header, then the tensors' bytes without gaps
(https://huggingface.co/docs/safetensors/index#format).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from headfirst.errors import NotReadyError

# In the order of the safetensors library's own enumeration: it lays tensors out by this rank, largest first.
DTYPE_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
_RANK = {name: rank for rank, name in enumerate(DTYPE_BITS)}
_LENGTH_BYTES = 8
_REFETCH = "Remove that file and run again: it is fetched anew."


@dataclass(frozen=True)
class Tensor:
    """One tensor of a shard; `start` and `end` are byte offsets from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Shard:
    """A safetensors file whose header was read and whose size agrees with it (`size` in bytes)."""

    path: Path
    size: int
    tensors: Mapping[str, Tensor]


def read_shard(path: Path) -> Shard:
    """Read and check the header of `path`.

    Raises NotReadyError, naming the file, expected and actual bytes, where it is truncated or no shard.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length_field = file.read(_LENGTH_BYTES)
        if len(length_field) < _LENGTH_BYTES:
            raise _truncated(path, _LENGTH_BYTES, size)
        length = int.from_bytes(length_field, "little")
        data_start = _LENGTH_BYTES + length
        if data_start > size:
            raise _truncated(path, data_start, size)
        raw = file.read(length)
    try:
        header = json.loads(raw)
        header.pop("__metadata__", None)
        tensors = {
            name: Tensor(
                name,
                entry["dtype"],
                tuple(entry["shape"]),
                data_start + entry["data_offsets"][0],
                data_start + entry["data_offsets"][1],
            )
            for name, entry in header.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise NotReadyError("this is not a safetensors file: its header cannot be read", where=str(path),
                            hint=_REFETCH) from error  # fmt: skip
    expected = max((tensor.end for tensor in tensors.values()), default=data_start)
    if expected != size:
        raise _truncated(path, expected, size)
    for tensor in tensors.values():
        bits = DTYPE_BITS.get(tensor.dtype)
        if bits is not None and (tensor.end - tensor.start) * 8 != prod(tensor.shape) * bits:
            raise NotReadyError(
                f"tensor {tensor.name} has {tensor.end - tensor.start} bytes, which its shape "
                f"{list(tensor.shape)} and type {tensor.dtype} do not give", where=str(path), hint=_REFETCH,
            )  # fmt: skip
    return Shard(path, size, tensors)


def read_bytes(shard: Shard, tensor: Tensor) -> bytes:
    """All bytes of one (small) tensor."""
    with shard.path.open("rb") as file:
        return os.pread(file.fileno(), tensor.end - tensor.start, tensor.start)


def layout(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> tuple[bytes, list[Tensor], int]:
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
    data_start = _LENGTH_BYTES + len(raw)
    placed = [
        Tensor(name, dtype, shape, data_start + start, data_start + end)
        for (name, dtype, shape), (start, end) in zip(ordered, spans, strict=True)
    ]
    return len(raw).to_bytes(_LENGTH_BYTES, "little") + raw, placed, data_start + offset


def _truncated(path: Path, expected: int, actual: int) -> NotReadyError:
    word = "truncated" if actual < expected else "longer than its header says"
    return NotReadyError(
        f"shard {path.name} is {word}: expected {expected} bytes, found {actual}",
        where=str(path),
        hint=_REFETCH,
    )
