"""Fingerprints of OpenPGP keys, without gpg: RFC 4880, sections 4.2, 6.2 and 12.2. Python 3.8+."""

from __future__ import annotations

import base64
import binascii
import hashlib
import typing as t

PUBLIC_KEY = 6  # a primary key; subkeys are 14
BEGIN, END = b"-----BEGIN PGP PUBLIC KEY BLOCK-----", b"-----END PGP PUBLIC KEY BLOCK-----"


def fingerprints(data: bytes) -> t.List[str]:
    """Of every primary key in a file, armoured or not, in upper-case hex.

    Raises ValueError where the file holds no OpenPGP keys.
    """
    found = []
    for tag, body in _packets(_binary(data)):
        if tag != PUBLIC_KEY:
            continue
        if body[:1] != b"\x04":
            raise ValueError("a key of another version than 4")
        framed = b"\x99" + len(body).to_bytes(2, "big") + body
        found.append(hashlib.sha1(framed).hexdigest().upper())  # noqa: S324 - what a fingerprint is
    if not found:
        raise ValueError("no key")
    return found


def _binary(data: bytes) -> bytes:
    """The file without its armour, of which there may be several blocks."""
    if BEGIN not in data:
        return data
    blocks = [part.partition(END)[0] for part in data.split(BEGIN)[1:]]
    return b"".join(_unarmoured(block) for block in blocks)


def _unarmoured(block: bytes) -> bytes:
    _, _, text = block.replace(b"\r", b"").partition(b"\n\n")  # headers end with an empty line
    lines = [line for line in text.split() if not line.startswith(b"=")]  # the last one is a checksum
    try:
        return base64.b64decode(b"".join(lines), validate=True)
    except binascii.Error as error:
        raise ValueError(f"damaged armour: {error}") from error


def _packets(data: bytes) -> t.Iterator[t.Tuple[int, bytes]]:
    """Tag and body of each packet."""
    at = 0
    while at < len(data):
        head = data[at]
        if not head & 0x80:
            raise ValueError("not OpenPGP")
        if head & 0x40:
            tag, (size, at) = head & 0x3F, _new_length(data, at + 1)
        else:
            tag, width = head >> 2 & 0x0F, 1 << (head & 3)
            if width == 8:
                raise ValueError("a packet without an end")
            size, at = int.from_bytes(data[at + 1 : at + 1 + width], "big"), at + 1 + width
        yield tag, data[at : at + size]
        at += size


def _new_length(data: bytes, at: int) -> t.Tuple[int, int]:
    """The length at a place, and the place after it."""
    first = data[at] if at < len(data) else 0
    if first < 192:
        return first, at + 1
    if first < 224:
        return (first - 192 << 8) + data[at + 1] + 192, at + 2
    if first == 255:
        return int.from_bytes(data[at + 1 : at + 5], "big"), at + 5
    raise ValueError("a packet in parts")
