"""Which member fetches which file from the hub: decided by the head, carried out by each member.

Each file is given to one member at a time, and to another one only where that one fails: so the hub sends it
once. A pure decision: it is called with what is known of the members, and with the time.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from collections.abc import Set as AbstractSet

from headfirst.node.weights.fetch.fetch_run import MOST_AT_ONCE
from headfirst.node.weights.transfer.board import Member

MODES = ("auto", "head", "all")
_AHEAD = 1  # files that a member is given before it has time for them: news take a moment
_ROUNDS = 8  # in which all files are fetched, at least: what is fetched last must still be passed on
_SILENCE_S = 20.0
_HOLDER_WAIT_S = 10.0  # for a member that has a file already, and still asks the source for its list
_WARM_S, _PROBE_S = 2.0, 5.0
_FASTER = 1.25


class Sharing:
    """`files` in the order in which they are wanted, for `count` members. For the modes see docs/weights.md.

    `needs` returns the members that need a file.
    """

    def __init__(
        self, files: Sequence[str], count: int, mode: str, needs: Callable[[str], Container[int]]
    ) -> None:
        self._waiting = list(files)
        self._total = len(files)
        self._began: float | None = None
        self._needs = needs
        self._probe = _Probe() if mode == "auto" else None
        self._all = mode == "all"
        self.given: list[set[str]] = [set() for _member in range(count)]
        """The files that each member has to fetch, or has fetched."""

    @property
    def reason(self) -> str:
        """Why one or all members fetch, for the job's progress; "" while it is not known."""
        return self._probe.reason if self._probe else ""

    def step(
        self,
        members: Sequence[Member],
        silent_s: Callable[[int], float | None],
        fetched: AbstractSet[str],
        proven: AbstractSet[str],
        now: float,
    ) -> bool:
        """Give files to members that have time; returns whether anything was given or taken back.

        `fetched` are the files that were fetched, `proven` those of them that need not come again; `now` in
        seconds of a monotonic clock.
        """
        alive = [index for index, member in enumerate(members) if _is_alive(index, member, silent_s(index))]
        able = [index for index in alive if index == 0 or members[index].fetches]
        before = [set(names) for names in self.given]
        for index, names in enumerate(self.given):
            if index not in able:
                self._waiting = sorted(names - fetched) + self._waiting
                names.intersection_update(fetched)  # &= makes another set where these are a dict's keys
            if index not in alive:
                # It has stated these, and nobody can receive them: the head, as what it states comes first.
                lost = names - proven - frozenset().union(*(members[other].have for other in alive))
                names.difference_update(lost)
                self.given[0] |= lost
        together = self._all
        if self._probe:
            together = self._probe.together(members, len(able), now)
        fetchers = able if together else [0]
        at_once = (
            max(1, min(MOST_AT_ONCE, self._total // (_ROUNDS * len(fetchers)))) if together else MOST_AT_ONCE
        )
        self._began = self._began if self._began is not None else now
        held_names = set()
        for name in list(self._waiting):
            holders = [index for index, member in enumerate(members) if name in member.have]
            if ready := [index for index in holders if index in able]:
                self._give(name, ready[0])
            elif holders and now - self._began < _HOLDER_WAIT_S:
                held_names.add(name)
        for index in sorted(fetchers, key=lambda index: len(self.given[index] - fetched)):
            free = at_once + _AHEAD - len(self.given[index] - fetched)
            candidates = [name for name in self._waiting if name not in held_names]
            candidates.sort(key=lambda name: index not in self._needs(name))
            for name in candidates[: max(0, free)]:
                self._give(name, index)
        return before != self.given

    def fall_back(self, proven: AbstractSet[str]) -> bool:
        """Give the head all files but those `proven`, as step() does."""
        before = [set(names) for names in self.given]
        for names in self.given[1:]:
            self._waiting += names - proven
            names.intersection_update(proven)
        self.given[0].update(self._waiting)
        self._waiting = []
        return before != self.given

    def _give(self, name: str, index: int) -> None:
        self._waiting.remove(name)
        self.given[index].add(name)


class _Probe:
    """Measures whether members fetch faster together than the head alone, which they do not on one line."""

    def __init__(self) -> None:
        self.reason = ""
        self._since: float | None = None
        self._first: tuple[float, int] | None = None
        self._alone = 0.0
        self._together = False
        self._decided = False

    def together(self, members: Sequence[Member], able: int, now: float) -> bool:
        """Whether all members that are able are to fetch now."""
        fetched = sum(member.fetched for member in members)
        if self._decided or able < 2 or not fetched:
            return self._together
        self._since = self._since if self._since is not None else now
        if now - self._since < _WARM_S:
            return self._together
        self._first = self._first or (now, fetched)
        seconds = now - self._first[0]
        if seconds < _PROBE_S:
            return self._together
        rate = (fetched - self._first[1]) / seconds
        if not self._together:
            self._alone, self._together, self._since, self._first = rate, True, now, None
        else:
            self._decided = True
            self._together = rate > _FASTER * self._alone
            who = "all nodes" if self._together else "the head alone"
            alone, both = (f"{value / 1e6:.1f} MB/s" for value in (self._alone, rate))
            self.reason = f"fetched by {who}: {both} together, {alone} by the head alone"
        return self._together


def _is_alive(index: int, member: Member, silent_s: float | None) -> bool:
    return index == 0 or (not member.error and (silent_s or 0.0) < _SILENCE_S)
