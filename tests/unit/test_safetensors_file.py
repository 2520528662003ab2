"""The header of a safetensors file: what the format allows, and what a hostile one can hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from headfirst.common.safetensors_file import header_length, read_header
from headfirst.common.untrusted import UntrustedError
from together import together


def header(**tensors: Any) -> bytes:
    return json.dumps(tensors).encode()


def tensor(begin: int, end: int, shape: Any = None, dtype: Any = "U8", **more: Any) -> dict[str, Any]:
    shape = [end - begin] if shape is None else shape
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end], **more}


def test_headers_that_the_format_allows() -> None:
    found = read_header(
        header(
            a=tensor(0, 4), e=tensor(4, 4, [0]), b=tensor(4, 12, [1, 2, 2], "F16"), __metadata__={"k": "v"}
        )
        + b"  ",
        100,
    )
    assert [(item.name, item.dtype, item.start, item.end) for item in found] == [
        ("a", "U8", 100, 104),
        ("e", "U8", 104, 104),
        ("b", "F16", 104, 112),
    ]
    assert read_header(b"{}", 10) == []


@together(
    "text",
    [
        b"",
        b" {}",
        b"[]",
        b"{}x",
        b"\xff\xfe{\x00}\x00",
        b'{"a": 1e',
        b"{" * 100_000,
        b'{"a":' * 50_000,
        b'{"a": {"dtype": "U8", "shape": [[[[1]]]], "data_offsets": [0, 1]}}',
        header(a=tensor(0, 1))[:-1] + b", " + header(a=tensor(1, 2))[1:],
        header(a=5),
        header(a=[]),
        header(a={}),
        header(a=tensor(0, 1, extra=1)),
        header(a=tensor(0, 1, dtype=["U8"])),
        header(a=tensor(0, 1, dtype="F4_X")),
        header(a=tensor(0, 1, [1.0])),
        header(a=tensor(0, 1, [True])),
        header(a=tensor(0, 1, ["1"])),
        header(a=tensor(0, 1, "1")),
        header(a=tensor(0, 1, [-1, -1])),
        header(a=tensor(0, 1, [1] * 1000)),
        header(a=tensor(0, 1, [2])),
        header(a=tensor(0, 4, [2**62, 2**62])),
        header(a={"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2]}),
        header(a={"dtype": "U8", "shape": [1], "data_offsets": ["0", "1"]}),
        header(a={"dtype": "U8", "shape": [1], "data_offsets": [1, 0]}),
        header(a={"dtype": "U8", "shape": [1], "data_offsets": [-1, 0]}),
        header(a={"dtype": "U8", "shape": [1], "data_offsets": [0, 10**30]}),
        header(a=tensor(0, 4), b=tensor(2, 6)),
        header(a=tensor(0, 4), b=tensor(0, 4)),
        header(a=tensor(0, 4), b=tensor(6, 8)),
        header(a=tensor(2, 4)),
        header(__metadata__={"a": 1}),
        header(__metadata__=["a"]),
        header(__metadata__=[]),
        header(__metadata__=0),
        header(__metadata__=""),
        header(**{"a\nb": tensor(0, 1)}),
        header(**{"a" * 5000: tensor(0, 1)}),
    ],
)
def test_headers_that_the_format_refuses(text: bytes) -> None:
    with pytest.raises(UntrustedError) as raised:
        read_header(text, 0)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("length", [0, 1, 100_000_001, 2**63, 2**64 - 1])
def test_lengths_of_a_header_that_the_format_refuses(length: int) -> None:
    with pytest.raises(UntrustedError):
        header_length(length.to_bytes(8, "little"))


def test_a_length_that_is_cut_off() -> None:
    with pytest.raises(UntrustedError, match="fewer than 8 bytes"):
        header_length(b"\x02")
