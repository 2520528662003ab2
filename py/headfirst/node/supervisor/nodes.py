"""The supervisors of a cluster as one of them reaches them: itself directly, the others over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headfirst.common.untrusted import UntrustedError
from headfirst.node.peers.client import PeerClient, Unreachable
from headfirst.node.supervisor import messages
from headfirst.node.supervisor.messages import Request, Seen

if TYPE_CHECKING:
    from headfirst.node.supervisor.node import Node


def ask(client: PeerClient, address: str, request: Request, limit_s: float) -> Seen | None:
    """The answer of another host; None where there is none within the limit."""
    try:
        data = client.ask(address, messages.encode(request), limit_s=limit_s, longest=messages.LONGEST)
        return messages.seen(data, where=address)
    except (*Unreachable, UntrustedError):
        return None


class Nodes:
    """Sends requests from the address `own`. Safe to use from threads."""

    def __init__(self, own: str, node: Node, client: PeerClient) -> None:
        self.own, self._node, self._client = own, node, client

    def ask(self, address: str, request: Request, limit_s: float) -> Seen | None:
        """The answer; None where there is none within the limit."""
        if address == self.own:
            return self._node.answer(request, self.own)
        return ask(self._client, address, request, limit_s)
