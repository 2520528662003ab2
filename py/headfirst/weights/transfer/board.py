"""What a node has recorded of a transfer: the files there are, how to prove them, and how far each member is.

Boards of neighbours are merged in any order and as often as one likes; in the end all are equal. What a
later start of the origin reports replaces what an earlier one reported; of a member, what it reported last.

Later is who has the higher number, which begins as the time of day. Whose clock went back since its last
start hears its own old number from the others, and goes on from that one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headfirst.weights.proof.hashing import FileHash


@dataclass(frozen=True)
class Overview:
    """What the origin sends, and no other node sends. `epoch` rises with every start of the origin.

    `made_from` is the origin part of the manifest that the copies will have; `sizes` are bytes by relative
    path; `known` the xxh3 of files that the origin has proven before: who has them need not wait for more.
    """

    epoch: int
    made_from: Mapping[str, str]
    sizes: Mapping[str, int]
    known: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """All files in the order in which a member's `have` counts them."""
        return sorted(self.sizes)


@dataclass(frozen=True)
class Member:
    """How far a node is. `beat` rises with each report; bytes count whole files and parts.

    `ready`: it has compared what it has with the overview. `wants`: what it asks its neighbours for.
    `received` are bytes that are here, `fetched` those of them that it brought from the source. `fetches`: it
    reaches the source too. The head's `given` are the files that each member has to fetch; others have none.
    """

    beat: int = 0
    ready: bool = False
    have: frozenset[str] = frozenset()
    wants: frozenset[str] = frozenset()
    received: int = 0
    converted: int = 0
    done: bool = False
    error: str = ""
    fetches: bool = False
    fetched: int = 0
    given: tuple[frozenset[str], ...] = ()


@dataclass
class _Seen:
    member: Member = field(default_factory=Member)
    at: float = -1.0  # when its beat rose last; negative: never


class Board:
    """Safe to use from threads. `changed` is notified whenever there may be news.

    `needs` returns the members that need a file; by default all do.
    """

    def __init__(self, index: int, count: int, needs: Callable[[str], Container[int]] | None = None) -> None:
        self.index = index
        self._needs = needs or (lambda _name: range(count))
        self.changed = threading.Condition(threading.RLock())
        self.version = 0
        self.overview: Overview | None = None
        self._epoch_heard = 0
        self._proofs: dict[str, FileHash] = {}
        self._seen = [_Seen() for _ in range(count)]
        self._seen[index].member = Member(beat=time.time_ns())

    def describe(self, overview: Overview) -> None:
        """Take the newer overview. What members reported of an older one counts no more."""
        with self.changed:
            if self.index == 0:
                overview = replace(overview, epoch=max(overview.epoch, self._epoch_heard + 1))
            if self.overview and overview.epoch <= self.overview.epoch:
                return
            self.overview = overview
            for seen in self._seen:
                seen.member = Member(beat=seen.member.beat)
            sizes = overview.sizes
            self._proofs = {
                name: proof for name, proof in self._proofs.items() if sizes.get(name) == proof.size
            }
            self._tell()

    def outdo(self, epoch: int) -> None:
        """The origin's own overview is the newest, whatever an earlier start of it reported."""
        with self.changed:
            self._epoch_heard = max(self._epoch_heard, epoch)
            if self.overview and self.overview.epoch < epoch:
                self.describe(self.overview)

    def announce(self, proofs: Mapping[str, FileHash]) -> None:
        """Report how files of the overview are proven; the last call counts."""
        with self.changed:
            sizes = self.overview.sizes if self.overview else {}
            fresh = {
                name: proof
                for name, proof in proofs.items()
                if sizes.get(name) == proof.size and self._proofs.get(name) != proof
            }
            if fresh:
                self._proofs |= fresh
                self._tell()

    def proofs(self) -> Mapping[str, FileHash]:
        """All files that can be proven so far, in the order in which they were announced."""
        with self.changed:
            return dict(self._proofs)

    def member(self, index: int) -> Member:
        """What is known of a member."""
        with self.changed:
            return self._seen[index].member

    @property
    def members(self) -> list[Member]:
        """What is known of all."""
        with self.changed:
            return [seen.member for seen in self._seen]

    def silent_for(self, index: int) -> float | None:
        """Seconds since a member was heard of, by whatever way; None where it never was."""
        with self.changed:
            at = self._seen[index].at
            return None if at < 0 else time.monotonic() - at

    def say(self, *, quietly: bool = False, **changes: object) -> None:
        """Change what is known of this node itself; `quietly` where nobody needs to hear it at once."""
        with self.changed:
            mine = self._seen[self.index]
            mine.member = replace(mine.member, beat=mine.member.beat + 1, **changes)  # type: ignore[arg-type]
            if not quietly:
                self._tell()

    def hear(self, members: Mapping[int, Member]) -> None:
        """Take what others reported of members; its own entry is kept."""
        with self.changed:
            news = False
            for index, member in members.items():
                seen = self._seen[index]
                if member.beat <= seen.member.beat:
                    continue
                if index == self.index:  # what an earlier start of it reported
                    seen.member = replace(seen.member, beat=member.beat + 1)
                    news = True
                    continue
                news |= _news(seen.member) != _news(member)
                seen.member, seen.at = member, time.monotonic()
            if news:
                self._tell()

    def everybody_has(self, name: str) -> bool:
        """Whether no member will ask for `name` any more."""
        needing = self._needs(name)
        return all(
            member.done or name in member.have or index not in needing
            for index, member in enumerate(self.members)
        )

    def bringer(self, name: str) -> int:
        """The member that brings `name` into the ring: the head, unless it has another one do so."""
        return next((index for index, names in enumerate(self.members[0].given) if name in names), 0)

    def is_wanted_after_us(self, name: str) -> bool:
        """Whether a member that comes after this one, on the way from who fetches `name`, asks for it."""
        with self.changed:
            members, count = self.members, len(self._seen)
            after = range(1, (self.bringer(name) - self.index - 1) % count + 1)
            return any(
                name in member.wants and not member.error
                for member in (members[(self.index + step) % count] for step in after)
            )

    def is_given_away(self, name: str) -> bool:
        """Whether the head has another member fetch `name`."""
        return any(name in names for names in self.members[0].given[1:])

    def wait(self, version: int, timeout: float) -> int:
        """Return the version once it is not `version` any more, or after `timeout` seconds."""
        with self.changed:
            self.changed.wait_for(lambda: self.version != version, timeout)
            return self.version

    def _tell(self) -> None:
        self.version += 1
        self.changed.notify_all()


def _news(member: Member) -> tuple[object, ...]:
    """What others should hear at once."""
    return member.ready, member.have, member.wants, member.done, member.error, member.fetches, member.given


def mask(names: Iterable[str], order: list[str]) -> str:
    """A set of names as a bit mask in hex, by their place in `order`."""
    places = {name: place for place, name in enumerate(order)}
    return f"{sum(1 << places[name] for name in set(names) & places.keys()):x}"


def unmask(bits: str, order: list[str]) -> frozenset[str]:
    """The names of a bit mask."""
    number = int(bits, 16)
    return frozenset(name for place, name in enumerate(order) if number >> place & 1)
