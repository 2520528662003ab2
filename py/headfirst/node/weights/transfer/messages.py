"""What two nodes of a transfer send each other: the part of a board that the other one lacks, as JSON."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headfirst.common.untrusted import (
    UntrustedError,
    for_terminal,
    hex_digest,
    integer,
    json_document,
    json_object,
    shown,
)
from headfirst.node.weights.fetch.source import LARGEST_FILE
from headfirst.node.weights.proof.hashing import FileHash
from headfirst.node.weights.proof.manifest import check_names, parse_origin, parse_record
from headfirst.node.weights.transfer.board import Board, Claim, Member, Overview, mask, unmask
from headfirst.node.weights.transfer.signing import file_statement

VERSION = 2
"""Of the messages. Nodes of one transfer have one version: the same run installs the node tools on all."""
LONGEST = 64 << 20
"""Bytes of a message."""
_FILES_AT_ONCE = 8  # a proof of a shard of 4 GB has 130 kB
_DEPTH = 4
_MASK = re.compile(r"[0-9a-f]{1,25000}")
_INDEX_DIGITS = 5
_SIGNATURE = 128  # hex digits of Ed25519's
_LONGEST_ERROR = 4096  # characters


@dataclass(frozen=True)
class TransferMessage:
    """`known`: the files of which the sender has what the head signed; `claimed`: those of which it has what
    a member stated. `files`: what it thinks that the receiver lacks."""

    epoch: int
    known: frozenset[str] = frozenset()
    claimed: frozenset[str] = frozenset()
    members: Mapping[int, Member] = field(default_factory=dict)
    files: Mapping[str, Claim] = field(default_factory=dict)
    overview: Overview | None = None


def compose(board: Board, other: TransferMessage | None) -> TransferMessage:
    """What to send to a node that last sent `other` (None: it sent nothing yet)."""
    with board.changed:
        overview = board.overview
        if overview is None:
            return TransferMessage(0)
        claims = board.claims()
        signed = [name for name, claim in claims.items() if claim.signature]
        stated = [name for name, claim in claims.items() if not claim.signature]
        current = other is not None and other.epoch == overview.epoch
        known = other.known if other and current else frozenset()
        claimed = known | other.claimed if other and current else frozenset()
        lacking = [name for name in signed if name not in known]
        lacking += [name for name in stated if name not in claimed]
        return TransferMessage(
            overview.epoch,
            frozenset(signed),
            frozenset(stated),
            dict(enumerate(board.members)),
            {name: claims[name] for name in lacking[:_FILES_AT_ONCE]} if other else {},
            None if current else overview,
        )


def absorb(board: Board, message: TransferMessage) -> None:
    """Put what was heard on the board; what is older than the board's own overview is not heard.

    The head takes from nobody what the files are, and signs how they are proven itself.
    """
    with board.changed:
        if message.overview and board.index == 0:
            board.supersede(message.overview.epoch)  # it is signed, the message's is not
        elif message.overview:
            board.describe(message.overview)
        if board.overview and message.epoch == board.overview.epoch:
            board.merge_members(message.members)
            board.merge_claims(message.files)


def speak(board: Board, other: TransferMessage | None) -> bytes:
    """compose() as bytes."""
    with board.changed:
        return _dump(compose(board, other), board.overview.names if board.overview else [])


def _dump(message: TransferMessage, order: list[str]) -> bytes:
    overview = message.overview
    return json.dumps(
        {
            "version": VERSION,
            "epoch": message.epoch,
            "known": mask(message.known, order),
            "claimed": mask(message.claimed, order),
            "members": {
                index: {
                    **asdict(member),
                    "have": mask(member.have, order),
                    "wants": mask(member.wants, order),
                    "given": [mask(names, order) for names in member.given],
                }
                for index, member in message.members.items()
            },
            "files": {
                name: {
                    **asdict(claim.proof.record),
                    "pieces": base64.b64encode(claim.proof.pieces).decode(),
                    "signature": claim.signature,
                }
                for name, claim in message.files.items()
            },
            "overview": asdict(overview) if overview else None,
        }
    ).encode()


def parse(data: bytes, board: Board) -> TransferMessage:
    """Read what a neighbour sent; UntrustedError where any of it is malformed, or not signed by the head."""
    document = json_object(
        json_document(data, what="the message", limit=LONGEST, depth=_DEPTH), what="the message"
    )
    if (version := document.get("version")) != VERSION:
        raise UntrustedError(
            f"version {shown(str(version))} of the protocol instead of {VERSION}; "
            "run `deploy up` on all nodes together, so that they have the same node tools"
        )
    overview = _overview(document.get("overview"))
    if overview and not board.key.has_signed(overview.signature, overview.statement):
        raise UntrustedError("an overview that the head of this transfer has not signed")
    epoch = integer(document.get("epoch"), what="the epoch")
    if overview and overview.epoch != epoch:
        raise UntrustedError("an overview of another epoch than the message's")
    mine = overview or board.overview
    if mine and mine.epoch != epoch:
        mine = None
    order = mine.names if mine else []
    members = json_object(document.get("members"), what="the members", limit=len(board.members))
    files = json_object(document.get("files"), what="the files", limit=_FILES_AT_ONCE)
    return TransferMessage(
        epoch,
        _names(document.get("known"), order),
        _names(document.get("claimed"), order),
        {
            _index(key, len(board.members)): _member(entry, order, len(board.members))
            for key, entry in members.items()
        },
        # Of another overview than the one that is there they are of no use, and cannot be verified.
        {name: _claim(name, files[name], board, mine) for name in check_names(files) if mine},
        overview,
    )


def _overview(document: Any) -> Overview | None:
    if document is None:
        return None
    fields = json_object(document, what="the overview")
    sizes = json_object(fields.get("sizes"), what="the sizes")
    names = check_names(sizes)
    known = json_object(fields.get("known"), what="the known files")
    sha256 = json_object(fields.get("sha256"), what="the listed files")
    if not known.keys() | sha256.keys() <= sizes.keys():
        raise UntrustedError("the known files, or those listed with a sha256, are not all among the files")
    return Overview(
        integer(fields.get("epoch"), what="the epoch"),
        parse_origin(fields.get("made_from")),
        {name: integer(sizes[name], what="a size", high=LARGEST_FILE) for name in names},
        {name: hex_digest(xxh3, what="an xxh3", digits=32) for name, xxh3 in known.items()},
        {name: hex_digest(digest, what="a sha256", digits=64) for name, digest in sha256.items()},
        hex_digest(fields.get("signature"), what="a signature", digits=_SIGNATURE),
    )


def _index(key: str, count: int) -> int:
    if not key.isdecimal() or len(key) > _INDEX_DIGITS:
        raise UntrustedError(f"the number of a member is not valid: {shown(key)}")
    return integer(int(key), what="a member's number", high=count - 1)


def _member(entry: Any, order: list[str], count: int) -> Member:
    fields = json_object(entry, what="a member")
    flags = {name: fields.get(name) for name in ("ready", "done", "fetches", "doubts")}
    error, assignments = fields.get("error"), fields.get("given")
    if not isinstance(assignments, list) or len(assignments) > count:
        raise UntrustedError("the shares of the members are not a list with one entry for each member")
    if not all(isinstance(flag, bool) for flag in flags.values()) or not isinstance(error, str):
        raise UntrustedError("a flag of a member is not a boolean, or its error is not text")
    return Member(
        beat=integer(fields.get("beat"), what="a member's beat"),
        have=_names(fields.get("have"), order),
        wants=_names(fields.get("wants"), order),
        received=integer(fields.get("received"), what="a member's received bytes"),
        converted=integer(fields.get("converted"), what="a member's converted bytes"),
        error=for_terminal(error)[:_LONGEST_ERROR],
        fetched=integer(fields.get("fetched"), what="a member's fetched bytes"),
        given=tuple(_names(bits, order) for bits in assignments),
        **flags,  # type: ignore[arg-type]
    )


def _names(bits: Any, order: list[str]) -> frozenset[str]:
    if not isinstance(bits, str) or not _MASK.fullmatch(bits):
        raise UntrustedError("a set of files is not a bit mask in hexadecimal digits")
    return unmask(bits, order)


def _claim(name: str, entry: Any, board: Board, overview: Overview) -> Claim:
    proof = _proof(entry)
    signature = entry.get("signature")
    if signature != "":
        hex_digest(signature, what="a signature", digits=_SIGNATURE)
    claim = Claim(proof, signature)
    if (
        signature
        and board.claims().get(name) != claim  # those known are verified
        and not board.key.has_signed(signature, file_statement(overview.made_from, name, proof))
    ):
        raise UntrustedError(f"digests of {shown(name)} that the head of this transfer has not signed")
    return claim


def _proof(entry: Any) -> FileHash:
    record = parse_record(entry)
    pieces = entry.get("pieces")
    if not isinstance(pieces, str):
        raise UntrustedError("the digests of a file's pieces are not text")
    try:
        digests = base64.b64decode(pieces, validate=True)
    except ValueError:
        raise UntrustedError("the digests of a file's pieces are not base64") from None
    proof = FileHash(record.size, record.xxh3, record.sha256, digests)
    if not proof.is_consistent:
        raise UntrustedError("a file does not have one digest for each of its pieces")
    return proof
