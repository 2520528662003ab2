"""All ranks of a replica, as the supervisor of rank 0 reads them, stops and starts them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from headfirst.node.supervisor.messages import Do, Request, Seen
from headfirst.node.supervisor.nodes import Nodes
from headfirst.node.supervisor.records import Record

_LOOK_S = 5.0
# Docker kills a rank that does not stop, which takes its time on a busy node.
_CHANGE_S = 60.0
_AT_ONCE = 32


class Ranks:
    """The ranks of one generation. `None` stands for a rank whose node does not answer."""

    def __init__(self, record: Record, nodes: Nodes) -> None:
        self.addresses = record.ranks
        self._record, self._nodes = record, nodes
        self._pool = ThreadPoolExecutor(max_workers=min(len(record.ranks), _AT_ONCE))

    def look(self) -> list[Seen | None]:
        """Every rank."""
        return self._ask_all("look", range(len(self.addresses)), _LOOK_S)

    def stop(self, ranks: Sequence[int]) -> list[Seen | None]:
        """Stop these ranks; answers in their order."""
        return self._ask_all("stop", ranks, _CHANGE_S)

    def start(self, ranks: Sequence[int]) -> list[Seen | None]:
        """Start these ranks; answers in their order."""
        return self._ask_all("start", ranks, _CHANGE_S)

    def logs(self) -> list[list[str]]:
        """The last lines of every rank's log, [] where its node does not answer."""
        answers = self._ask_all("log", range(len(self.addresses)), _LOOK_S)
        return [list(answer.log) if answer else [] for answer in answers]

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask_all(self, do: Do, ranks: Sequence[int], limit_s: float) -> list[Seen | None]:
        return list(self._pool.map(lambda rank: self._ask(do, rank, limit_s), ranks))

    def _ask(self, do: Do, rank: int, limit_s: float) -> Seen | None:
        request = Request(do, self._record.name, self._record.generation)
        return self._nodes.ask(self.addresses[rank], request, limit_s)
