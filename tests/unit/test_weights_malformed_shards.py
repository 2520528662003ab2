"""Files that break the safetensors format: one clear error with the file's name, never a traceback."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.common.safetensors_file import read_shard
from safetensors import SafetensorError, deserialize

A = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
B = {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}


def shard(header: object, data: bytes = bytes(16), length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


def one(**changes: object) -> bytes:
    """A file with tensor `a` of 8 bytes, with `changes`."""
    return shard({"a": {**A, **changes}}, bytes(8))


MALFORMED: dict[str, bytes] = {
    "empty file": b"",
    "seven bytes": bytes(7),
    "header beyond the file": shard({"a": A}, bytes(8), length=10_000),
    "header over 100 MB": shard({"a": A}, bytes(8), length=100_000_001),
    "header of 2**64 - 1 bytes": shard({"a": A}, bytes(8), length=2**64 - 1),
    "no header": shard(b"", b""),
    "not JSON": shard(b"{nonsense", b""),
    "a list": shard([], b""),
    "white space first": shard(b" " + json.dumps({"a": A}).encode(), bytes(8)),
    "UTF-16": shard(json.dumps({"a": A}).encode("utf-16-le"), bytes(8)),
    "invalid UTF-8": shard(b'{"\xff": ' + json.dumps(A).encode() + b"}", bytes(8)),
    "a name twice": shard(b'{"a": %s, "a": %s}' % ((json.dumps(A).encode(),) * 2), bytes(8)),
    "a field twice": shard(b'{"a": {"dtype": "F64", "dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'),
    "overlap": shard({"a": A, "b": {**B, "data_offsets": [4, 12]}}, bytes(12)),
    "same bytes twice": shard({"a": A, "b": A}, bytes(8)),
    "hole between": shard({"a": A, "b": {**B, "data_offsets": [12, 20]}}, bytes(20)),
    "hole at the start": shard({"b": B}),
    "trailing bytes": shard({"a": A}, bytes(9)),
    "too short": shard({"a": A}, bytes(7)),
    "data without tensors": shard({}, bytes(8)),
    "negative offset": one(data_offsets=[-8, 0]),
    "offsets in reverse": one(data_offsets=[8, 0]),
    "offset that is text": one(data_offsets=["0", "8"]),
    "offset that is a float": one(data_offsets=[0.0, 8.0]),
    "one offset": one(data_offsets=[8]),
    "three offsets": one(data_offsets=[0, 8, 8]),
    "offset beyond the data": one(data_offsets=[0, 800], shape=[200]),
    "offset of 2**70": one(data_offsets=[0, 2**70], shape=[2**68]),
    "negative shape": one(shape=[-2]),
    "two negative sizes": one(shape=[-1, -2]),
    "shape that is a float": one(shape=[2.0]),
    "shape that is true": one(shape=[True, 2]),
    "shape that is text": one(shape="2"),
    "shape of another size": one(shape=[3]),
    "shape whose product overflows": shard(
        {"a": {"dtype": "F32", "shape": [2**62, 2**62, 0], "data_offsets": [0, 0]}}, b""
    ),
    "unknown dtype": one(dtype="F31"),
    "dtype that is a list": one(dtype=["F32"]),
    "dtype that is a number": one(dtype=32),
    "no dtype": shard({"a": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    "an unknown field": one(more=1),
    "a tensor that is a number": shard({"a": 1}, b""),
    "a tensor that is null": shard({"a": None}, b""),
    "metadata that is a list": shard({"__metadata__": ["a"], "a": A}, bytes(8)),
    "metadata with a number": shard({"__metadata__": {"format": 1}, "a": A}, bytes(8)),
    "metadata with an object": shard({"__metadata__": {"format": {}}, "a": A}, bytes(8)),
    "deep JSON": shard(b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", b""),
    "deep JSON without an end": shard(b'{"a": ' + b'{"a": ' * 100_000, b""),
    "a name with an escape sequence": shard({"\x1b]0;title\x07": A}, bytes(8)),
    "a name with a lone surrogate": shard(
        b'{"\\ud800": ' + json.dumps(A).encode() + b"}", bytes(8)
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_file_is_refused_with_its_name(case: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(MALFORMED[case])
    with pytest.raises(NotReadyError) as caught:
        read_shard(path)
    assert "model.safetensors" in caught.value.what
    assert caught.value.hint
    assert str(caught.value).isprintable() or "\x1b" not in str(caught.value)
    assert len(caught.value.what) < 1000


def test_what_the_library_refuses_is_refused_here() -> None:
    """The set above has a case for most refusals of the library; the rest is refused here only."""
    refused = {case for case, data in MALFORMED.items() if _refused_by_the_library(data)}
    assert refused >= {"overlap", "hole between", "trailing bytes", "metadata with a number"}
    assert len(refused) > 30


def _refused_by_the_library(data: bytes) -> bool:
    try:
        deserialize(data)
    except SafetensorError:
        return True
    return False


def _mutations(good: bytes) -> list[bytes]:
    """`good` with each byte of its header changed in a few ways, and cut off everywhere."""
    end = 8 + int.from_bytes(good[:8], "little")
    changed = [
        good[:place] + bytes([value]) + good[place + 1 :]
        for place in range(end)
        for value in (0, 0x20, 0x22, 0x2D, 0x39, 0x5D, 0x7D, good[place] ^ 1)
        if value != good[place]
    ]
    return changed + [good[:length] for length in range(len(good))]


def test_every_changed_byte_that_the_library_refuses_is_refused_here(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    accepted_here_only, refused_by_both = [], 0
    for data in _mutations(shard({"__metadata__": {"format": "pt"}, "a": A, "b": B})):
        path.write_bytes(data)
        refused = _refused_by_the_library(data)
        try:
            read_shard(path)
        except NotReadyError:
            refused_by_both += refused
        else:
            if refused:
                accepted_here_only.append(data)
    assert accepted_here_only == []
    assert refused_by_both > 500


@pytest.mark.parametrize(
    "header",
    [
        {"b": B, "a": A},
        {"__metadata__": {}, "a": A, "b": B},
        {"a": A, "empty": {"dtype": "BF16", "shape": [0, 7], "data_offsets": [8, 8]}, "b": B},
        {"scalar": {"dtype": "U64", "shape": [], "data_offsets": [0, 8]}, "b": B},
    ],
)
def test_valid_files_are_read(header: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(shard(json.dumps(header).encode() + b"   "))
    assert read_shard(path).tensors.keys() == header.keys() - {"__metadata__"}
    assert len(deserialize(path.read_bytes())) == len(header.keys() - {"__metadata__"})


def test_a_header_over_the_limit_is_not_read(tmp_path: Path) -> None:
    """In a process of its own with less memory than the header has."""
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write((800 << 20).to_bytes(8, "little") + b"{")
        file.truncate(900 << 20)
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=_limited(600 << 20),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3, done.stderr
    assert "model.safetensors is not a safetensors file" in done.stderr
    assert "Traceback" not in done.stderr


_READ = """
import sys
from pathlib import Path
from headfirst.common.errors import HeadfirstError
from headfirst.common.safetensors_file import read_shard
try:
    read_shard(Path(sys.argv[1]))
except HeadfirstError as error:
    sys.stderr.write(str(error))
    sys.exit(error.exit_code)
"""


def _limited(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size))
