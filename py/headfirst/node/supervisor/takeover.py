"""A spare takes the place of a host of a replica that stays away, where `spare_takeover` is set.

What the replica would be with the spare in the place of that host is a generation of its own, whose
containers `deploy up` has made on all its hosts. The supervisor of the spare (Standbys) activates it when
every one of these hosts agrees (Agreement): each finds by itself that the host is away and that the replica
does not answer. So two generations of a replica never run: they share a host that has one of them. Once a
host has activated it, the others follow, whatever becomes of the host that was away.

A spare that somebody has taken over may ask at any time. So what it reports counts for nothing, both when it
prepares the takeover and when it activates it.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from headfirst.node.peers.client import PeerClient
from headfirst.node.supervisor import host_state, records
from headfirst.node.supervisor.containers import Containers
from headfirst.node.supervisor.events import Events
from headfirst.node.supervisor.messages import Do, RankRequest, Seen
from headfirst.node.supervisor.nodes import Nodes, ask
from headfirst.node.supervisor.records import GenerationRecord, StandbyRecord

TURN_S = 5.0
_ANSWER_S = 30.0
_CONNECT_S = 3.0
# The spare prepares all hosts one after the other before it activates the first.
_LASTS_S = 300.0


class Agreement:
    """What the host with the address `host` has agreed to. Safe to use from threads, one for each replica."""

    def __init__(self, host: str, client: PeerClient, containers: Containers) -> None:
        self._host, self._client, self._containers = host, client, containers
        self._agreed_at: dict[tuple[str, str], float] = {}

    def prepare(self, standby: StandbyRecord) -> str:
        """Agree to the generation for some minutes; "", or why this host does not. Raises EngineDown."""
        key, why = (standby.record.name, standby.record.generation), self._objection(standby)
        if why:
            self._agreed_at.pop(key, None)
        else:
            self._agreed_at[key] = host_state.uptime()
        return why

    def activate(self, standby: StandbyRecord) -> str:
        """Why the generation is not activated, "" where nothing objects. Raises EngineDown.

        Once a host of the replica has activated it nothing does: half of a replica serves nobody. But where a
        later takeover has put another one in its place, that one may serve while all its hosts have it.
        """
        name, generation = standby.record.name, standby.record.generation
        agreed_at, why = self._agreed_at.get((name, generation)), ""
        if agreed_at is not None and host_state.uptime() - agreed_at <= _LASTS_S:
            why = self._objection(standby)
            if not why:
                return ""
        if not self._is_activated(standby):
            return why or "it has not agreed to it"
        current = self._current(name)
        if current is None or current.generation == generation or self._has_changed(current):
            return ""
        return why or self._objection(standby)

    def _objection(self, standby: StandbyRecord) -> str:
        away = standby.instead_of[standby.replaces]
        if ask(self._client, away, RankRequest("member", "", ""), _CONNECT_S):
            return f"{away} answers {self._host}"
        others = (rank.running and rank.name != standby.record.name for rank in self._containers.ranks())
        if self._host == standby.spare and any(others):
            return "the spare serves another replica"
        current = self._current(standby.record.name)
        # Since an earlier takeover it may be at another address than the inventory's replica.
        urls = [standby.instead_of_url, *([current.url] if current else [])]
        return next((f"the replica answers at {url}" for url in urls if _answers(url)), "")

    def _current(self, name: str) -> GenerationRecord | None:
        rank = self._containers.rank(name)
        return records.read(name, rank.generation) if rank else None

    def _is_activated(self, standby: StandbyRecord) -> bool:
        """Whether this host, or another one that is not the spare, has the generation already."""
        rank = self._containers.rank(standby.record.name)
        if rank is not None and rank.generation == standby.record.generation:
            return True  # it was interrupted before it wrote the record
        others = [address for address in standby.record.ranks if address not in (self._host, standby.spare)]
        return standby.record.generation in self._generations(standby.record, others)

    def _has_changed(self, record: GenerationRecord) -> bool:
        """Whether another host of this generation has another one by now."""
        others = [address for address in record.ranks if address != self._host]
        return any(generation != record.generation for generation in self._generations(record, others))

    def _generations(self, record: GenerationRecord, addresses: Sequence[str]) -> Iterator[str]:
        """What these hosts have, of those that answer."""
        request = RankRequest("look", record.name, record.generation)
        answers = (ask(self._client, address, request, _CONNECT_S) for address in addresses)
        return (seen.generation for seen in answers if seen and not seen.problem)


def _answers(url: str) -> bool:
    """Whether something accepts connections there: an engine that works needs no supervisor."""
    place = urlsplit(url)
    with contextlib.suppress(OSError), socket.create_connection((place.hostname, place.port), _CONNECT_S):
        return True
    return False


class Standbys:
    """The generations that wait on this node, a spare."""

    def __init__(self, nodes: Nodes, events: Events) -> None:
        self._host, self._nodes, self._events = nodes.host, nodes, events
        self._away_since: dict[tuple[str, str], float] = {}
        self._told: dict[str, str] = {}

    def turn(self) -> None:
        """Check the hosts of each replica, and activate what waits for long enough."""
        for standby in records.standbys(self._host):
            hosts = {*standby.instead_of, *standby.record.ranks} - {self._host}
            seen = {address: self._ask("look", standby, address) for address in hosts}
            if any(answer and answer.generation == standby.record.generation for answer in seen.values()):
                self._activate(standby)
            elif self._is_due(standby, seen) and self._tell(standby, "prepare"):
                self._told.pop(standby.record.name, None)  # hosts change now, which is news each time
                self._activate(standby)

    def _activate(self, standby: StandbyRecord) -> None:
        if self._tell(standby, "activate"):
            self._told.pop(standby.record.name, None)
            replaced = standby.instead_of[standby.replaces]
            self._note(standby, f"the spare {self._host} takes the place of {replaced}")

    def _is_due(self, standby: StandbyRecord, seen: Mapping[str, Seen | None]) -> bool:
        """Whether exactly the host to be replaced has been away for long enough."""
        away = [rank for rank, address in enumerate(standby.instead_of) if seen[address] is None]
        key = (standby.record.name, standby.record.generation)
        if away != [standby.replaces]:
            self._away_since.pop(key, None)
            return False
        return host_state.uptime() - self._away_since.setdefault(key, host_state.uptime()) >= standby.after_s

    def _tell(self, standby: StandbyRecord, do: Do) -> bool:
        """Whether every host of the generation agrees; this one is the last to be asked."""
        others = [address for address in standby.record.ranks if address != self._host]
        for address in (*others, self._host):
            answer = self._ask(do, standby, address)
            if answer is None or answer.problem:
                self._note(
                    standby, f"the spare waits: {address}: {answer.problem if answer else 'no answer'}"
                )
                return False
        return True

    def _note(self, standby: StandbyRecord, text: str) -> None:
        if self._told.get(standby.record.name) != text:
            self._told[standby.record.name] = text
            self._events.add(standby.record.name, "takeover", text, generation=standby.record.generation)

    def _ask(self, do: Do, standby: StandbyRecord, address: str) -> Seen | None:
        request = RankRequest(do, standby.record.name, standby.record.generation)
        return self._nodes.ask(address, request, _ANSWER_S)
