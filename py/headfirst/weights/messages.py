"""What two nodes of a transfer tell each other: the part of a board that the other one lacks, as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headfirst.weights.board import Board, Member, Overview, mask, unmask
from headfirst.weights.hashing import FileHash

_FILES_AT_ONCE = 8  # a proof of a shard of 4 GB has half a megabyte


@dataclass(frozen=True)
class Message:
    """`known`: the files whose proofs the sender has. `files`: proofs that it thinks the receiver lacks."""

    epoch: int
    known: frozenset[str] = frozenset()
    members: Mapping[int, Member] = field(default_factory=dict)
    files: Mapping[str, FileHash] = field(default_factory=dict)
    overview: Overview | None = None


def compose(board: Board, other: Message | None) -> Message:
    """What to tell a node that last said `other` (None: it said nothing yet)."""
    with board.changed:
        overview = board.overview
        if overview is None:
            return Message(0)
        proofs = board.proofs()
        current = other is not None and other.epoch == overview.epoch
        known = other.known if other and current else frozenset()
        lacking = [name for name in proofs if name not in known][:_FILES_AT_ONCE] if other else []
        return Message(
            overview.epoch,
            frozenset(proofs),
            dict(enumerate(board.members)),
            {name: proofs[name] for name in lacking},
            None if current else overview,
        )


def absorb(board: Board, message: Message) -> None:
    """Put what was heard on the board; what is older than the board's own overview is not heard.

    The origin takes from nobody what the files are, or how they are proven.
    """
    with board.changed:
        if board.index == 0:
            board.outdo(message.epoch)
        elif message.overview:
            board.describe(message.overview)
        if board.overview and message.epoch == board.overview.epoch:
            if board.index > 0:
                board.announce(message.files)
            board.hear(message.members)


def speak(board: Board, other: Message | None) -> bytes:
    """compose() as bytes."""
    with board.changed:
        return _dump(compose(board, other), board.overview.names if board.overview else [])


def _dump(message: Message, order: list[str]) -> bytes:
    overview = message.overview
    return json.dumps(
        {
            "epoch": message.epoch,
            "known": mask(message.known, order),
            "members": {
                index: {
                    **asdict(member),
                    "have": mask(member.have, order),
                    "wants": mask(member.wants, order),
                }
                for index, member in message.members.items()
            },
            "files": {
                name: {
                    "size": proof.size,
                    "xxh3": proof.xxh3,
                    "sha256": proof.sha256,
                    "root": proof.root.hex(),
                    "layer": base64.b64encode(proof.layer).decode(),
                }
                for name, proof in message.files.items()
            },
            "overview": asdict(overview) if overview else None,
        }
    ).encode()


def parse(data: bytes, board: Board) -> Message:
    """Read what a neighbour said; ValueError, KeyError or TypeError where it makes no sense."""
    document = json.loads(data)
    overview = _overview(document["overview"])
    epoch = int(document["epoch"])
    mine = overview or board.overview
    order = mine.names if mine and mine.epoch == epoch else []
    return Message(
        epoch,
        unmask(document["known"], order),
        {int(index): _member(entry, order) for index, entry in document["members"].items()},
        {str(name): _proof(entry) for name, entry in document["files"].items()},
        overview,
    )


def _overview(document: Any) -> Overview | None:
    if document is None:
        return None
    made_from = {str(key): str(value) for key, value in document["made_from"].items()}
    sizes = {str(name): int(size) for name, size in document["sizes"].items()}
    known = {str(name): str(xxh3) for name, xxh3 in document["known"].items()}
    return Overview(int(document["epoch"]), made_from, sizes, known)


def _member(entry: dict[str, Any], order: list[str]) -> Member:
    return Member(**{**entry, "have": unmask(entry["have"], order), "wants": unmask(entry["wants"], order)})


def _proof(entry: dict[str, Any]) -> FileHash:
    sha256 = entry["sha256"]
    return FileHash(
        int(entry["size"]),
        str(entry["xxh3"]),
        None if sha256 is None else str(sha256),
        bytes.fromhex(entry["root"]),
        base64.b64decode(entry["layer"]),
    )
