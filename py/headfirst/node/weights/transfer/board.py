"""The state of a transfer as one member records it: the files, their proofs, and the report of each member.

Boards of neighbours are merged in any order, any number of times, and become equal. Of two overviews the one
with the higher epoch counts, of two reports of a member the one with the higher beat. Both numbers begin as
the time of day, in nanoseconds. A member whose clock went back since its last start receives its own earlier
number from the others, and continues above it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headfirst.node.weights.proof.hashing import FileHash
from headfirst.node.weights.transfer.signing import Key, file_statement, statement

_FARTHEST = 1 << 62
"""Nanoseconds, 146 years: no later beat is heard, else a member could use up another one's numbers."""


@dataclass(frozen=True)
class Overview:
    """What the origin sends, and no other node sends. `epoch` rises with every start of the origin.

    `made_from` is the origin part of the manifest that the copies will have; `sizes` are bytes by relative
    path; `known` the xxh3 of files that the origin has proven before: who has them need not wait for more.
    `sha256` is what the source lists; where it lists none, only the origin proves the file. `signature` is
    the origin's, in hex.
    """

    epoch: int
    made_from: Mapping[str, str]
    sizes: Mapping[str, int]
    known: Mapping[str, str] = field(default_factory=dict)
    sha256: Mapping[str, str] = field(default_factory=dict)
    signature: str = field(default="", compare=False)

    @property
    def statement(self) -> bytes:
        """What the origin signs: all of it."""
        mappings = (self.made_from, self.sizes, self.known, self.sha256)
        return statement("overview", [self.epoch, *map(dict, mappings)])

    @property
    def names(self) -> list[str]:
        """All files in the order in which a member's `have` counts them."""
        return sorted(self.sizes)


@dataclass(frozen=True)
class Member:
    """How far a node is. `beat` rises with each report; bytes count whole files and parts.

    `ready`: it has compared what it has with the overview. `wants`: what it asks its neighbours for.
    `received` are bytes that are here, `fetched` those of them that it brought from the source. `fetches`: it
    reaches the source too. `doubts`: another member sent it what is wrong. The head's `given` are the
    files that each member has to fetch; others have none.
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
    doubts: bool = False
    fetched: int = 0
    given: tuple[frozenset[str], ...] = ()


@dataclass(frozen=True)
class Claim:
    """How a file is proven: by the origin, with its `signature` in hex.

    With "" a member that fetched the file states it. Then it is no proof yet: who receives the file compares
    it with the sha256 that the origin's overview has.
    """

    proof: FileHash
    signature: str = ""


@dataclass
class _Seen:
    member: Member = field(default_factory=Member)
    at: float = -1.0  # when its beat rose last; negative: never


class Board:
    """The board of member `index` of `count`. Safe to use from threads.

    `changed` is notified whenever there may be news. `key`: of the transfer; the origin's has the private
    half. `needs` returns the members that need a file, by default all.
    """

    def __init__(
        self, index: int, count: int, key: Key, needs: Callable[[str], Container[int]] | None = None
    ) -> None:
        self.index = index
        self.key = key
        self._needs = needs or (lambda _name: range(count))
        self.changed = threading.Condition(threading.RLock())
        self.version = 0
        self.overview: Overview | None = None
        self._epoch_heard = 0
        self._claims: dict[str, Claim] = {}
        self._rejected: set[tuple[str, FileHash]] = set()
        self._seen = [_Seen() for _member in range(count)]
        self._seen[index].member = Member(beat=time.time_ns())

    def describe(self, overview: Overview) -> None:
        """Replace an older overview, and discard what members reported of it. The origin signs its own."""
        with self.changed:
            before = self.overview
            if self.index == 0:
                overview = replace(overview, epoch=max(overview.epoch, self._epoch_heard + 1))
                overview = replace(overview, signature=self.key.sign(overview.statement))
            if before and overview.epoch <= before.epoch:
                return
            self.overview = overview
            for seen in self._seen:
                seen.member = Member(beat=seen.member.beat, doubts=seen.member.doubts)
            same = before is not None and before.made_from == overview.made_from
            self._claims = {
                name: claim
                for name, claim in self._claims.items()
                if same and overview.sizes.get(name) == claim.proof.size
            }
            self._rejected = set()
            self._notify()

    def supersede(self, epoch: int) -> None:
        """Give the origin's own overview an epoch above `epoch`, which an earlier start of it used."""
        with self.changed:
            self._epoch_heard = max(self._epoch_heard, epoch)
            if self.overview and self.overview.epoch < epoch:
                self.describe(self.overview)

    def announce(self, proofs: Mapping[str, FileHash]) -> None:
        """Add the proofs of files by this node; the last call counts.

        The origin signs; another member states only what it fetched of the files with a listed sha256.
        """
        with self.changed:
            if (overview := self.overview) is None:
                return
            if self.index == 0:
                made_from = overview.made_from
                claims = {
                    name: Claim(proof, self.key.sign(file_statement(made_from, name, proof)))
                    for name, proof in proofs.items()
                }
            else:
                claims = {
                    name: Claim(proof) for name, proof in proofs.items() if self._is_listed(name, proof)
                }
            self._add(claims, own=True)

    def merge_claims(self, claims: Mapping[str, Claim]) -> None:
        """Add what other members state of files; their signatures were verified before.

        A claim without a signature counts until it is rejected, or until the origin signs one, and only of a
        file that the origin has given to a member and whose sha256 it lists.
        """
        with self.changed:
            self._add({name: claim for name, claim in claims.items() if self._counts(name, claim)})

    def _counts(self, name: str, claim: Claim) -> bool:
        if claim.signature:
            return self.index > 0
        is_rejected = (name, claim.proof) in self._rejected
        return not is_rejected and self._is_listed(name, claim.proof) and self.is_given_away(name)

    def _is_listed(self, name: str, proof: FileHash) -> bool:
        listed = self.overview.sha256.get(name) if self.overview else None
        return listed is not None and proof.sha256 == listed

    def _add(self, claims: Mapping[str, Claim], *, own: bool = False) -> None:
        """A signed claim replaces every other one, this node's `own` one those without a signature."""
        sizes = self.overview.sizes if self.overview else {}
        fresh = {}
        for name, claim in claims.items():
            known = self._claims.get(name)
            is_better = known is None or claim.signature or (own and not known.signature)
            if is_better and sizes.get(name) == claim.proof.size and known != claim:
                fresh[name] = claim
        if fresh:
            self._claims |= fresh
            self._notify()

    def reject(self, name: str, proof: FileHash) -> None:
        """Take note that a file is not what a member stated of it."""
        with self.changed:
            self._rejected.add((name, proof))
            self.report(doubts=True)
            if self._claims.get(name) == Claim(proof):
                del self._claims[name]
                self._notify()

    def is_signed(self, name: str, proof: FileHash) -> bool:
        """Whether the origin states that `name` is proven by `proof`."""
        with self.changed:
            claim = self._claims.get(name)
            return claim is not None and claim.signature != "" and claim.proof == proof

    def claims(self) -> Mapping[str, Claim]:
        """How all files of which it is known so far are proven, in the order in which that was announced."""
        with self.changed:
            return dict(self._claims)

    def proofs(self) -> Mapping[str, FileHash]:
        """claims() without the signatures."""
        return {name: claim.proof for name, claim in self.claims().items()}

    @property
    def members(self) -> list[Member]:
        """What is known of each."""
        with self.changed:
            return [seen.member for seen in self._seen]

    def silent_for(self, index: int) -> float | None:
        """Seconds since a member was heard of, by whatever way; None where it never was."""
        with self.changed:
            at = self._seen[index].at
            return None if at < 0 else time.monotonic() - at

    def report(self, *, notify: bool = True, **changes: object) -> None:
        """Change the report of this node itself; with `notify` the other members get it at once."""
        with self.changed:
            mine = self._seen[self.index]
            mine.member = replace(mine.member, beat=mine.member.beat + 1, **changes)  # type: ignore[arg-type]
            if notify:
                self._notify()

    def give(self, assignments: Iterable[Iterable[str]]) -> None:
        """Have each member fetch files; for the head. What is stated of other files is dropped."""
        with self.changed:
            self.report(given=tuple(map(frozenset, assignments)))
            self._claims = {
                name: claim
                for name, claim in self._claims.items()
                if claim.signature or self.is_given_away(name)
            }

    def merge_members(self, members: Mapping[int, Member]) -> None:
        """Add the reports of other members; the entry of this node itself is kept."""
        with self.changed:
            news = False
            last = time.time_ns() + _FARTHEST
            for index, member in members.items():
                seen = self._seen[index]
                if not seen.member.beat < member.beat <= last:
                    continue
                if index == self.index:  # what an earlier start of it reported
                    seen.member = replace(seen.member, beat=member.beat + 1)
                    news = True
                    continue
                news |= _news(seen.member) != _news(member)
                seen.member, seen.at = member, time.monotonic()
            if news:
                self._notify()

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

    def _notify(self) -> None:
        self.version += 1
        self.changed.notify_all()


def _news(member: Member) -> tuple[object, ...]:
    """What others should hear at once."""
    return (
        *(member.ready, member.have, member.wants, member.done, member.error),
        *(member.fetches, member.doubts, member.given),
    )


def mask(names: Iterable[str], order: list[str]) -> str:
    """A set of names as a bit mask in hex, by their place in `order`."""
    places = {name: place for place, name in enumerate(order)}
    return f"{sum(1 << places[name] for name in set(names) & places.keys()):x}"


def unmask(bits: str, order: list[str]) -> frozenset[str]:
    """The names of a bit mask."""
    number = int(bits, 16)
    return frozenset(name for place, name in enumerate(order) if number >> place & 1)
