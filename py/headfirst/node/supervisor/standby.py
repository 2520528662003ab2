"""A spare takes the place of a host of a replica that stays away, where `spare_takeover` is set.

What the replica would be with the spare in the place of that host is a generation of its own, whose
containers `deploy up` has made on all its hosts. The supervisor of the spare activates it when every one of
these hosts agrees: each finds by itself that the host is away and that the replica does not answer. So two
generations of a replica never run: they share a host that has one of them. Once a host has activated it, the
others follow, whatever becomes of the host that was away.
"""

from __future__ import annotations

from collections.abc import Mapping

from headfirst.node.supervisor import clock, records
from headfirst.node.supervisor.events import Events
from headfirst.node.supervisor.messages import Do, Request, Seen
from headfirst.node.supervisor.nodes import Nodes
from headfirst.node.supervisor.records import Standby

TURN_S = 5.0
_ANSWER_S = 30.0


class Standbys:
    """The generations that wait on this node, a spare."""

    def __init__(self, nodes: Nodes, events: Events) -> None:
        self._own, self._nodes, self._events = nodes.own, nodes, events
        self._away_since: dict[tuple[str, str], float] = {}
        self._told: dict[str, str] = {}

    def turn(self) -> None:
        """Check the hosts of each replica, and activate what waits for long enough."""
        for one in records.standbys(self._own):
            hosts = {*one.instead_of, *one.record.ranks} - {self._own}
            seen = {address: self._ask("look", one, address) for address in hosts}
            if any(found and found.generation == one.record.generation for found in seen.values()):
                self._activate(one)
            elif self._is_wanted(one, seen) and self._tell(one, "prepare"):
                self._told.pop(one.record.name, None)  # hosts change now, which is news each time
                self._activate(one)

    def _activate(self, one: Standby) -> None:
        if self._tell(one, "activate"):
            self._told.pop(one.record.name, None)
            self._note(one, f"the spare {self._own} takes the place of {one.instead_of[one.replaces]}")

    def _is_wanted(self, one: Standby, seen: Mapping[str, Seen | None]) -> bool:
        """Whether exactly the host to be replaced has been away for long enough."""
        away = [rank for rank, address in enumerate(one.instead_of) if seen[address] is None]
        key = (one.record.name, one.record.generation)
        if away != [one.replaces]:
            self._away_since.pop(key, None)
            return False
        return clock.uptime() - self._away_since.setdefault(key, clock.uptime()) >= one.after_s

    def _tell(self, one: Standby, do: Do) -> bool:
        """Whether every host of the generation agrees; this one is the last to be asked."""
        others = [address for address in one.record.ranks if address != self._own]
        for address in (*others, self._own):
            answer = self._ask(do, one, address)
            if answer is None or answer.problem:
                self._note(one, f"the spare waits: {address}: {answer.problem if answer else 'no answer'}")
                return False
        return True

    def _note(self, one: Standby, text: str) -> None:
        if self._told.get(one.record.name) != text:
            self._told[one.record.name] = text
            self._events.add(one.record.name, "takeover", text, generation=one.record.generation)

    def _ask(self, do: Do, one: Standby, address: str) -> Seen | None:
        request = Request(do, one.record.name, one.record.generation)
        return self._nodes.ask(address, request, _ANSWER_S)
