"""A BitTorrent v2 torrent of one file (BEP 52), written from hashes that are already known."""

from __future__ import annotations

import hmac
from pathlib import PurePosixPath
from typing import Any

import libtorrent as lt

from headfirst.weights.hashing import PIECE, FileHash


def make_torrent(name: str, proof: FileHash, secret: str) -> bytes:
    """The .torrent of the file with the relative path `name`, which it calls by its last part.

    A value made from `secret` and the path is part of the info dictionary, so that only holders of the secret
    know the info-hash, without which no peer accepts a handshake. Equal arguments give equal bytes.
    A torrent cannot hold an empty file.
    """
    entry = {b"length": proof.size, b"pieces root": proof.root}
    last = PurePosixPath(name).name.encode()
    info: dict[bytes, Any] = {
        b"file tree": {last: {b"": entry}},
        b"headfirst": hmac.digest(secret.encode(), name.encode(), "sha256"),
        b"meta version": 2,
        b"name": last,
        b"piece length": PIECE,
    }
    layers: dict[bytes, Any] = {proof.root: proof.layer} if proof.layer else {}
    torrent: dict[bytes, Any] = {b"info": info, b"piece layers": layers}
    return lt.bencode(torrent)
