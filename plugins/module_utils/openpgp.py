"""Keys of OpenPGP files, read and written without gpg: RFC 4880, sections 4.2, 6 and 12.2. Python 3.8+."""

from __future__ import annotations

import base64
import binascii
import hashlib
import typing as t

SIGNATURE, PUBLIC_KEY, USER_ID, SUBKEY, USER_ATTRIBUTE = 2, 6, 13, 14, 17
BEGIN, END = b"-----BEGIN PGP PUBLIC KEY BLOCK-----", b"-----END PGP PUBLIC KEY BLOCK-----"
LINE = 64

Packet = t.Tuple[int, bytes]


def public_keys(data: bytes) -> t.Dict[str, bytes]:
    """Every primary key of a file, armoured or not: its packets by its fingerprint in upper-case hex.

    A key is the primary key's packet and, up to the next primary key, user IDs, subkeys and signatures.
    Nothing else of the file is in the result. Raises ValueError for what is not OpenPGP or holds no key of
    version 4.
    """
    keys: t.Dict[str, t.List[Packet]] = {}
    for block in _blocks(data):
        current: t.List[Packet] = []  # packets before the first primary key belong to none
        signed = False  # the signatures of a packet that is left out are left out too
        for tag, body in _packets(block):
            if tag == PUBLIC_KEY:
                current = keys.setdefault(_fingerprint(body), [])
            if tag in (PUBLIC_KEY, USER_ID, SUBKEY, USER_ATTRIBUTE):
                signed = tag != USER_ATTRIBUTE
            elif tag != SIGNATURE:  # trust, marker, padding
                continue
            if signed and not (tag == PUBLIC_KEY and current):
                current.append((tag, body))
    if not keys:
        raise ValueError("no key")
    return {fingerprint: b"".join(_packet(*packet) for packet in key) for fingerprint, key in keys.items()}


def armoured(packets: bytes) -> bytes:
    """Packets as a single armoured block, which is what apt expects in a file that ends in .asc."""
    text = base64.b64encode(packets)
    lines = [text[at : at + LINE] for at in range(0, len(text), LINE)]
    checksum = b"=" + base64.b64encode(_crc24(packets).to_bytes(3, "big"))
    return b"\n".join([BEGIN, b"", *lines, checksum, END, b""])


def _fingerprint(body: bytes) -> str:
    if body[:1] != b"\x04":
        raise ValueError("a key of another version than 4")
    if len(body) > 0xFFFF:
        raise ValueError("a key that is too long")
    framed = b"\x99" + len(body).to_bytes(2, "big") + body
    return hashlib.sha1(framed).hexdigest().upper()  # noqa: S324 - what a fingerprint is


def _blocks(data: bytes) -> t.List[bytes]:
    """The file without its armour, of which there may be several blocks."""
    if BEGIN not in data:
        return [data]
    return [_unarmoured(part.partition(END)[0]) for part in data.split(BEGIN)[1:]]


def _unarmoured(block: bytes) -> bytes:
    _headers, _end, text = block.replace(b"\r", b"").partition(b"\n\n")  # headers end with an empty line
    lines = [line for line in text.split() if not line.startswith(b"=")]  # the last one is a checksum
    try:
        return base64.b64decode(b"".join(lines), validate=True)
    except binascii.Error as error:
        raise ValueError(f"damaged armour: {error}") from error


def _packets(data: bytes) -> t.Iterator[Packet]:
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
            size, at = int.from_bytes(_part(data, at + 1, width), "big"), at + 1 + width
        yield tag, _part(data, at, size)
        at += size


def _new_length(data: bytes, at: int) -> t.Tuple[int, int]:
    """The length at a place, and the place after it."""
    first = _part(data, at, 1)[0]
    if first < 192:
        return first, at + 1
    if first < 224:
        return (first - 192 << 8) + _part(data, at + 1, 1)[0] + 192, at + 2
    if first == 255:
        return int.from_bytes(_part(data, at + 1, 4), "big"), at + 5
    raise ValueError("a packet in parts")


def _part(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise ValueError("a packet that ends early")
    return data[at : at + size]


def _packet(tag: int, body: bytes) -> bytes:
    """A packet as gpg writes it; apt ignores a keyring whose first byte is not 0x98, 0x99 or 0xC6."""
    width = 1 if len(body) <= 0xFF else 2 if len(body) <= 0xFFFF else 4
    return bytes([0x80 | tag << 2 | width >> 1]) + len(body).to_bytes(width, "big") + body


def _crc24(data: bytes) -> int:
    crc = 0xB704CE
    for byte in data:
        crc ^= byte << 16
        for _bit in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= 0x1864CFB
    return crc
