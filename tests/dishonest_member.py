"""A member of a transfer that passes on other bytes than it received: `pipeline` with a changed sender.

`dishonest_member.py ATTACK FILE pipeline …`: what it sends of FILE has the hashes and digests of other bytes,
except with OTHER_BYTES, and whoever asks for the right ones gets these bytes as well. With GONE it sends
nothing of any file that it fetched.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headfirst.node.weights.cli import main
from headfirst.node.weights.proof.hashing import FileHash, hash_file
from headfirst.node.weights.transfer import messages
from headfirst.node.weights.transfer.board import Board, Overview, mask
from headfirst.node.weights.transfer.shelf import Shelf
from headfirst.node.weights.transfer.signing import Key, file_statement

WRONG = b"raise SystemExit('the attacker was here')\n"
OWN_KEY = "signs with a key of its own"
KEPT_SIGNATURE = "keeps the signatures of the head"
STATED = "states that a member has fetched it"
OTHER_BYTES = "states the right digests of other bytes"
GONE = "ends before it passes on what it fetched"


def wrong_bytes(size: int) -> bytes:
    """As many bytes as the file has."""
    return (WRONG * (size // len(WRONG) + 1))[:size]


def main_with(attack: str, name: str) -> None:
    """Take part as a member, but for what is sent of the file `name`."""
    key, dump, folder = Key.new(), messages._dump, Path(tempfile.mkdtemp())
    opened, available, beyond = Shelf.open, Shelf.available, Shelf.is_beyond
    served: dict[str, Path] = {}
    stated: set[str] = set()
    announce = Board.announce

    def announce_and_note(self: Board, proofs: Mapping[str, FileHash]) -> None:
        announce(self, proofs)
        stated.update(proofs)

    def lie(message: messages.TransferMessage, order: list[str]) -> bytes:
        document: dict[str, Any] = json.loads(dump(message, order))
        if attack not in (OTHER_BYTES, GONE) and (entry := document["files"].get(name)):
            path = folder / str(entry["size"])
            path.write_bytes(wrong_bytes(entry["size"]))
            proof = hash_file(path, with_sha256=attack == OWN_KEY)
            served[proof.version] = path
            entry |= {"xxh3": proof.xxh3, "pieces": base64.b64encode(proof.pieces).decode()}
            if attack == OWN_KEY:
                entry["sha256"] = proof.sha256
            if attack == STATED:
                entry["signature"] = ""
                given = ["0", mask([name], order)]
                document["members"]["0"] |= {"given": given, "beat": 1 << 62}
        if attack == OWN_KEY:
            sign(document)
        return json.dumps(document).encode()

    def sign(document: dict[str, Any]) -> None:
        if overview := document["overview"]:
            made_from.update(overview["made_from"])
            overview["known"].pop(name, None)
            overview.pop("signature", None)
            overview["signature"] = key.sign(Overview(**overview).statement)
        for file, entry in document["files"].items():
            record = messages._proof(entry)
            entry["signature"] = key.sign(file_statement(made_from, file, record))

    made_from: dict[str, str] = {}

    def open_wrong(self: Shelf, file: str, version: str, start: int, timeout: float) -> Any:
        if attack == GONE and file in stated:
            time.sleep(3)  # until all have heard of it
            os._exit(0)
        if version in served:
            return os.open(served[version], os.O_RDONLY), served[version].stat().st_size
        if file == name and (found := opened(self, file, version, start, timeout)):
            os.close(found[0])
            path = folder / "right-version"
            path.write_bytes(wrong_bytes(found[1]))
            return os.open(path, os.O_RDONLY), found[1]
        return opened(self, file, version, start, timeout)

    def is_available(self: Shelf, file: str, version: str, start: int, timeout: float) -> int:
        if version in served:
            return served[version].stat().st_size
        return available(self, file, version, start, timeout)

    def is_beyond(self: Shelf, file: str, version: str, start: int) -> bool:
        return version not in served and beyond(self, file, version, start)

    messages._dump, Board.announce = lie, announce_and_note  # type: ignore[method-assign]
    Shelf.open, Shelf.available, Shelf.is_beyond = open_wrong, is_available, is_beyond  # type: ignore[method-assign,assignment]
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[3:])


if __name__ == "__main__":
    main_with(*sys.argv[1:3])
