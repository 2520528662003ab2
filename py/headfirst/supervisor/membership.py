"""Whether this node still belongs to the cluster: a host that was replaced while it was away must not serve.

The other nodes refuse addresses that are not in their list, which `deploy up` writes. A node that is refused,
and is accepted by nobody, has left. One that reaches nobody has not: it goes on with what it has.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from headfirst.peers.client import NotAMember, PeerClient, Unreachable
from headfirst.supervisor import messages
from headfirst.supervisor.messages import Request

# Of many nodes so many are asked, others each time.
_ASKED = 5
_ANSWER_S = 5.0


def has_left(own: str, members: Sequence[str], client: PeerClient) -> bool | None:
    """Whether the others refuse this node; None where nobody answers."""
    others = [member for member in members if member != own]
    request = messages.encode(Request("member", "", ""))
    refused = None
    for address in random.sample(others, min(_ASKED, len(others))):
        try:
            client.ask(address, request, limit_s=_ANSWER_S, longest=messages.LONGEST)
        except NotAMember:
            refused = True
        except Unreachable:
            continue
        else:
            return False
    return refused
