"""Whether this host agrees to a generation that waits: it finds by itself that it is needed.

A spare that somebody has taken over may ask at any time. So what it reports counts for nothing, both when it
prepares the takeover and when it activates it.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from headfirst.node.peers.client import PeerClient
from headfirst.node.supervisor import clock, records
from headfirst.node.supervisor.containers import Containers
from headfirst.node.supervisor.messages import Request
from headfirst.node.supervisor.nodes import ask
from headfirst.node.supervisor.records import Record, Standby

_CONNECT_S = 3.0
# The spare prepares all hosts one after the other before it activates the first.
_LASTS_S = 300.0


class Agreement:
    """What this host, at the address `own`, has agreed to. Safe to use from threads, one for each replica."""

    def __init__(self, own: str, client: PeerClient, containers: Containers) -> None:
        self._own, self._client, self._containers = own, client, containers
        self._agreed_at: dict[tuple[str, str], float] = {}

    def prepare(self, one: Standby) -> str:
        """Agree to the generation for some minutes; "", or why this host does not. Raises EngineDown."""
        key, why = (one.record.name, one.record.generation), self._objection(one)
        if why:
            self._agreed_at.pop(key, None)
        else:
            self._agreed_at[key] = clock.uptime()
        return why

    def activate(self, one: Standby) -> str:
        """Why the generation is not activated, "" where nothing objects. Raises EngineDown.

        Once a host of the replica has activated it nothing does: half of a replica serves nobody. But where a
        later takeover has put another one in its place, that one may serve while all its hosts have it.
        """
        name, why = one.record.name, self._objection(one)
        agreed_at = self._agreed_at.get((name, one.record.generation))
        is_agreed = agreed_at is not None and clock.uptime() - agreed_at <= _LASTS_S
        if is_agreed and not why:
            return ""
        if not self._is_activated(one):
            return why or "it has not agreed to it"
        current = self._current(name)
        if current is None or current.generation == one.record.generation or self._has_changed(current):
            return ""
        return why

    def _objection(self, one: Standby) -> str:
        away = one.instead_of[one.replaces]
        if ask(self._client, away, Request("member", "", ""), _CONNECT_S):
            return f"{away} answers {self._own}"
        others = (rank.running and rank.name != one.record.name for rank in self._containers.ranks())
        if self._own == one.spare and any(others):
            return "the spare serves another replica"
        current = self._current(one.record.name)
        # Since an earlier takeover it may be at another address than the inventory's replica.
        urls = [one.instead_of_url, *([current.url] if current else [])]
        return next((f"the replica answers at {url}" for url in urls if _answers(url)), "")

    def _current(self, name: str) -> Record | None:
        rank = self._containers.rank(name)
        return records.read(name, rank.generation) if rank else None

    def _is_activated(self, one: Standby) -> bool:
        """Whether this host, or another one that is not the spare, has the generation already."""
        own = self._containers.rank(one.record.name)
        if own is not None and own.generation == one.record.generation:
            return True  # it was interrupted before it wrote the record
        others = [address for address in one.record.ranks if address not in (self._own, one.spare)]
        return one.record.generation in self._generations(one.record, others)

    def _has_changed(self, record: Record) -> bool:
        """Whether another host of this generation has another one by now."""
        others = [address for address in record.ranks if address != self._own]
        return any(generation != record.generation for generation in self._generations(record, others))

    def _generations(self, record: Record, addresses: Sequence[str]) -> Iterator[str]:
        """What these hosts have, of those that answer."""
        request = Request("look", record.name, record.generation)
        answers = (ask(self._client, address, request, _CONNECT_S) for address in addresses)
        return (seen.generation for seen in answers if seen and not seen.problem)


def _answers(url: str) -> bool:
    """Whether something accepts connections there: an engine that works needs no supervisor."""
    place = urlsplit(url)
    with contextlib.suppress(OSError), socket.create_connection((place.hostname, place.port), _CONNECT_S):
        return True
    return False
