"""Whether this node still belongs to the cluster: a host that was replaced while it was away must not serve.

The other nodes refuse addresses that are not in their list, which `deploy up` writes, and prove it with the
cluster's secret. A node that more than half of them refuse, and none accepts, has left. One that reaches
too few goes on with what it has: silence, and whatever is not proven, count for nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from headfirst.node.peers.client import NotAMember, PeerClient, Unreachable
from headfirst.node.supervisor import messages
from headfirst.node.supervisor.messages import Request

_ANSWER_S = 5.0


def has_left(own: str, members: Sequence[str], client: PeerClient) -> bool | None:
    """Whether the others refuse this node; None where too few prove that they do, and none accepts it."""
    others = [member for member in members if member != own]
    request = messages.encode(Request("member", "", ""))
    refusals = 0
    # The first that accepts decides; another one each time, so that no node answers all of many.
    for address in random.sample(others, len(others)):
        try:
            client.ask(address, request, limit_s=_ANSWER_S, longest=messages.LONGEST)
        except NotAMember:
            refusals += 1
        except Unreachable:
            continue
        else:
            return False
    return True if 2 * refusals > len(others) else None
