"""Requests of this host's supervisor to the others: one host, all ranks of a replica, or the membership.

None stands for a host that does not answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from headfirst.common.untrusted import UntrustedError
from headfirst.node.peers.client import NotAMember, PeerClient, Unreachable
from headfirst.node.supervisor import messages
from headfirst.node.supervisor.messages import Do, RankRequest, Seen
from headfirst.node.supervisor.records import GenerationRecord

_LOOK_S = 5.0
# Docker kills a rank that does not stop, which takes its time on a busy node.
_CHANGE_S = 60.0
_MEMBER_S = 5.0
_AT_ONCE = 32


def ask(client: PeerClient, address: str, request: RankRequest, limit_s: float) -> Seen | None:
    """The answer of another host; None where there is none within the limit."""
    try:
        data = client.ask(address, messages.encode(request), limit_s=limit_s, longest=messages.LONGEST)
        return messages.seen(data, where=address)
    except (*Unreachable, UntrustedError):
        return None


class Nodes:
    """Sends requests from the address `host`. Safe to use from threads.

    `answer` carries out a request to this host itself (Node.answer).
    """

    def __init__(self, host: str, answer: Callable[[RankRequest, str], Seen], client: PeerClient) -> None:
        self.host, self._answer, self._client = host, answer, client

    def ask(self, address: str, request: RankRequest, limit_s: float) -> Seen | None:
        """The answer; None where there is none within the limit."""
        if address == self.host:
            return self._answer(request, self.host)
        return ask(self._client, address, request, limit_s)


class Ranks:
    """The ranks of one generation, as the supervisor of rank 0 reads them, stops and starts them."""

    def __init__(self, record: GenerationRecord, nodes: Nodes) -> None:
        self._record, self._nodes = record, nodes
        self._all = range(len(record.ranks))
        self._pool = ThreadPoolExecutor(max_workers=min(len(record.ranks), _AT_ONCE))

    def look(self) -> list[Seen | None]:
        """Every rank."""
        return self._ask("look", self._all, _LOOK_S)

    def stop(self, ranks: Sequence[int]) -> list[Seen | None]:
        """Stop these ranks; answers in their order."""
        return self._ask("stop", ranks, _CHANGE_S)

    def start(self, ranks: Sequence[int]) -> list[Seen | None]:
        """Start these ranks; answers in their order."""
        return self._ask("start", ranks, _CHANGE_S)

    def logs(self) -> list[list[str]]:
        """The last lines of every rank's log, [] where its node does not answer."""
        return [list(answer.log) if answer else [] for answer in self._ask("log", self._all, _LOOK_S)]

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, do: Do, ranks: Sequence[int], limit_s: float) -> list[Seen | None]:
        request = RankRequest(do, self._record.name, self._record.generation)
        addresses = [self._record.ranks[rank] for rank in ranks]
        return list(self._pool.map(lambda address: self._nodes.ask(address, request, limit_s), addresses))


def has_left(host: str, members: Sequence[str], client: PeerClient) -> bool | None:
    """Whether this host has left the cluster: more than half of the others refuse it, and none accepts it.

    A host that was replaced while it was away must not serve. The others refuse addresses that are not in
    their list, which `deploy up` writes, and prove it with the cluster's secret. None: too few prove that
    they refuse, and none accepts; silence, and whatever is not proven, do not count.
    """
    others = [member for member in members if member != host]
    request = messages.encode(RankRequest("member", "", ""))
    refusals = 0
    # The first that accepts decides; another one each time, so that no node answers all of many.
    for address in random.sample(others, len(others)):
        try:
            client.ask(address, request, limit_s=_MEMBER_S, longest=messages.LONGEST)
        except NotAMember:
            refusals += 1
        except Unreachable:
            continue
        else:
            return False
    return True if 2 * refusals > len(others) else None
