"""What a host answers about its owner, its lock and the credentials: typed and validated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from headfirst.common import untrusted
from headfirst.common.untrusted import UntrustedError
from headfirst.control.credentials.identity import ID
from headfirst.control.credentials.secrets import Secrets

_TOKEN = re.compile(r"[0-9a-f]{1,64}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass(frozen=True)
class Owner:
    """The cluster that a host belongs to. `head` is the address of its head, `since` a time in UTC."""

    id: str
    cluster: str
    service: str
    who: str
    head: str
    since: str

    def __str__(self) -> str:
        return f"cluster {self.cluster} (service {self.service}, {self.who}, since {self.since})"


# A record that cannot be read still means that the host is somebody's.
UNREADABLE = Owner(
    id="", cluster="unknown", service="unknown", who="its record cannot be read", head="", since="unknown"
)


@dataclass(frozen=True)
class Lock:
    """The run that changes a host now. `controller` is the machine and boot where `pid` is a process."""

    token: str
    holder: str
    verb: str
    cluster: str
    controller: str
    pid: int
    started: int
    since: str
    left_s: float

    def __str__(self) -> str:
        run = f"`deploy {self.verb}` of cluster {self.cluster}"
        return f"{run} by {self.holder} (process {self.pid}), since {self.since}"


@dataclass(frozen=True)
class HostState:
    """One host's answer. `kept_*` are left from a service that was stopped without its data."""

    owner: Owner | None
    kept_owner: Owner | None
    lock: Lock | None
    credentials: Secrets | None
    kept_credentials: Secrets | None


def host_state(answer: dict[str, Any], host: str) -> HostState:
    """The answer, validated. Raises UntrustedError naming the file."""
    return HostState(
        owner=_owner(answer.get("owner"), f"{host}:/etc/headfirst/owner.json"),
        kept_owner=_owner(answer.get("kept_owner"), f"{host}:/var/lib/headfirst/owner.json"),
        lock=_lock(answer.get("lock"), f"{host}:/run/headfirst/lock.json"),
        credentials=_credentials(answer.get("credentials"), f"{host}:/etc/headfirst/credentials.json"),
        kept_credentials=_credentials(
            answer.get("kept_credentials"), f"{host}:/var/lib/headfirst/credentials.json"
        ),
    )


def _owner(text: Any, where: str) -> Owner | None:
    if text is None:
        return None
    try:
        fields = _object(text, "the owner record", where)
        return Owner(
            id=_matching(fields.get("id"), ID, "the id", where),
            since=_matching(fields.get("since"), _TIME, "the time", where),
            **{
                name: untrusted.line(fields.get(name), what=name, where=where, limit=256)
                for name in ("cluster", "service", "who", "head")
            },
        )
    except UntrustedError:
        return UNREADABLE


def _lock(text: Any, where: str) -> Lock | None:
    if text is None:
        return None
    fields = _object(text, "the lock", where)
    left_s = fields.get("left_s")
    return Lock(
        token=_matching(fields.get("token"), _TOKEN, "the token", where),
        since=_matching(fields.get("since"), _TIME, "the time", where),
        pid=untrusted.integer(fields.get("pid"), what="the process id", where=where),
        started=untrusted.integer(fields.get("started"), what="the start time", where=where),
        left_s=float(left_s) if isinstance(left_s, (int, float)) else 0.0,
        **{
            name: untrusted.line(fields.get(name), what=name, where=where, limit=256)
            for name in ("holder", "verb", "cluster", "controller")
        },
    )


def _credentials(text: Any, where: str) -> Secrets | None:
    if text is None:
        return None
    fields = _object(text, "the credentials", where)
    try:
        return Secrets.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise UntrustedError(
            f"the credentials on the head are not valid: {untrusted.shown(name)}: {first['msg']}",
            where=where,
            hint="Remove the file on the head: the controller's copy is written there again.",
        ) from None


def _object(text: Any, what: str, where: str) -> dict[str, Any]:
    if not isinstance(text, str):
        raise UntrustedError(f"{what} is not text", where=where)
    document = untrusted.json_document(text, what=what, where=where, limit=65536, depth=4)
    if not isinstance(document, dict):
        raise UntrustedError(f"{what} is not a JSON object", where=where)
    return document


def _matching(value: Any, pattern: re.Pattern[str], what: str, where: str) -> str:
    text = untrusted.line(value, what=what, where=where, limit=64)
    if not pattern.fullmatch(text):
        raise UntrustedError(f"{what} has the wrong form: {untrusted.shown(text)}", where=where)
    return text
