"""What supervisors send each other: requests about one replica, and what becomes of them, as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast, get_args

from headfirst.common import untrusted
from headfirst.common.untrusted import UntrustedError

LONGEST = 65_536
Do = Literal["member", "look", "start", "stop", "log", "prepare", "activate"]
# Both become parts of paths and of names that Docker compares. A look needs no generation.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_GENERATION = re.compile(r"(?:standby-)?[0-9a-f]{12}")


@dataclass(frozen=True)
class RankRequest:
    """`do` something with the rank of a replica: the container `name`, of this generation.

    A `member` request has neither: its answer proves that the host lists the one that sends it.
    """

    do: Do
    name: str
    generation: str


@dataclass(frozen=True)
class Seen:
    """A rank as its own node sees it.

    `generation` is "" where there is no container. `start` identifies a start; `ended`: why it does not run.
    `held`: somebody else works on the replica. `problem`: why the node can do nothing now.
    """

    generation: str = ""
    running: bool = False
    start: str = ""
    ended: str = ""
    held: bool = False
    problem: str = ""
    log: tuple[str, ...] = ()


def encode(message: RankRequest | Seen) -> bytes:
    """The message as JSON."""
    return json.dumps(asdict(message)).encode()


def request(data: bytes, where: str) -> RankRequest:
    """The request in `data`. Raises UntrustedError."""
    fields = _object(data, "the request of a supervisor", where)
    do = fields.get("do")
    if do not in get_args(Do):
        raise UntrustedError("a supervisor sends an unknown request", where=where)
    name, generation = _text(fields, "name", where), _text(fields, "generation", where)
    if do != "member" and not _NAME.fullmatch(name):
        raise UntrustedError("a supervisor sends a name that no replica has", where=where)
    if do not in ("member", "look") and not _GENERATION.fullmatch(generation):
        raise UntrustedError("a supervisor sends a generation that no replica has", where=where)
    return RankRequest(cast(Do, do), name, generation)


def seen(data: bytes, where: str) -> Seen:
    """The answer in `data`. Raises UntrustedError."""
    fields = _object(data, "the answer of a supervisor", where)
    log = fields.get("log")
    if not isinstance(log, list) or not all(isinstance(line, str) for line in log):
        raise UntrustedError("the answer of a supervisor has no log", where=where)
    return Seen(
        generation=_text(fields, "generation", where),
        running=fields.get("running") is True,
        start=_text(fields, "start", where),
        ended=_text(fields, "ended", where),
        held=fields.get("held") is True,
        problem=_text(fields, "problem", where),
        log=tuple(untrusted.for_terminal(line) for line in log),
    )


def _object(data: bytes, what: str, where: str) -> dict[str, Any]:
    document = untrusted.json_document(data, what=what, where=where, limit=LONGEST, depth=3)
    return untrusted.json_object(document, what=what, where=where)


def _text(fields: dict[str, Any], key: str, where: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or len(value) > 4096:
        raise UntrustedError(f"a supervisor sends no {key}", where=where)
    return untrusted.for_terminal(value)
