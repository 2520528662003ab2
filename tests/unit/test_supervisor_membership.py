"""Whether a node has left its cluster: only the members prove it. Real listeners and clients on loopback."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from headfirst.node.peers.authentication import PROOF, Caller
from headfirst.node.peers.client import PeerClient
from headfirst.node.peers.server import PER_PEER
from headfirst.node.supervisor import messages, nodes
from headfirst.node.supervisor.containers import Containers
from headfirst.node.supervisor.host_state import Holds
from headfirst.node.supervisor.messages import RankRequest
from headfirst.node.supervisor.node import NodeRanks, SupervisorListener
from headfirst.node.supervisor.nodes import has_left
from headfirst.node.supervisor.takeover import Agreement
from wire_tap import tapped

OWN, B, C, D, *SILENT = (f"127.0.0.{number}" for number in range(41, 48))
TOKEN, OTHER = "the cluster's secret", "another cluster's secret"
UNPROVEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def keys(own: str, members: Iterable[str]) -> dict[str, str]:
    """As the controller gives them."""
    return {member: "key of " + " ".join(sorted((own, member))) for member in members}


@dataclass
class Network:
    """Hosts that answer on loopback, all at the same port."""

    folder: Path
    stack: ExitStack
    port: int = field(default=0)

    def member(self, address: str, members: list[str], token: str = TOKEN) -> SupervisorListener:
        """A host with this list."""
        agreement = Agreement(
            address, PeerClient(address, self.port, token, keys(address, members)), Containers()
        )
        node = NodeRanks(Containers(), Holds(self.folder), agreement)
        listener = SupervisorListener((address, self.port), keys(address, members), token, node)
        self.port = int(listener.server_address[1])
        threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True).start()
        self.stack.callback(listener.server_close)
        self.stack.callback(listener.shutdown)
        return listener

    def program(self, address: str, answer: Callable[[bytes], bytes]) -> None:
        """Somebody without the secret at this address."""
        server = socket.create_server((address, self.port))
        self.port = server.getsockname()[1]

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        connection.sendall(answer(connection.recv(65_536)))

        threading.Thread(target=serve, daemon=True).start()
        self.stack.callback(server.close)
        self.stack.callback(server.shutdown, socket.SHUT_RDWR)

    def has_left(self, *members: str) -> bool | None:
        """What OWN decides, whose list has these others."""
        return has_left(OWN, [OWN, *members], PeerClient(OWN, self.port, TOKEN, keys(OWN, members)))


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    monkeypatch.setattr(nodes, "_MEMBER_S", 1.0)
    with ExitStack() as stack:
        yield Network(tmp_path, stack)


def test_a_host_has_left_where_all_others_refuse_it(network: Network) -> None:
    """One still accepts it in the moments in which the members get their new lists."""
    for address in (B, C):
        network.member(address, [B, C, D])
    assert network.has_left(B, C) is True
    network.member(D, [OWN, B, C, D])
    assert network.has_left(B, C, D) is False


def test_a_host_that_half_of_the_others_refuse_goes_on(network: Network) -> None:
    """A member that was taken over cannot end the ranks of others that reach nobody else."""
    network.member(B, [B, C, D])
    assert network.has_left(B, C) is None
    network.member(C, [B, C, D])
    assert network.has_left(B, C, D) is True
    network.member(D, [B, C, D])
    assert network.has_left(B, C, D, *SILENT) is None


def test_a_host_that_reaches_no_member_goes_on(network: Network) -> None:
    network.member(D, [])
    assert network.has_left(B, C) is None
    network.member(B, [B, C], OTHER)
    assert network.has_left(B) is None, "another cluster has taken it"
    network.program(C, lambda _: UNPROVEN)
    assert network.has_left(C) is None, "a program at its address has no secret"


def test_a_refusal_that_was_recorded_ends_nothing(network: Network) -> None:
    listener = network.member(C, [B, C])
    assert network.has_left(C) is True
    caller = Caller(TOKEN)
    lines = [f"{name}: {value}" for name, value in caller.sign("POST").items()]
    with socket.create_connection((C, network.port), 5, (OWN, 0)) as wire:
        wire.sendall("\r\n".join(["POST / HTTP/1.1", *lines, "", ""]).encode())
        recorded = b"".join(iter(lambda: wire.recv(65_536), b""))
    proof = re.findall(rb"X-Headfirst-Proof: (\w+)", recorded)[0].decode()
    assert caller.is_refusal(TOKEN, {PROOF: proof}, C, OWN)
    listener.shutdown()
    listener.server_close()
    network.program(C, lambda _: recorded)
    assert network.has_left(C) is None


def test_a_refusal_that_a_program_fetches_for_its_own_address_ends_nothing(network: Network) -> None:
    """It passes the request on, and is the one that is refused."""
    network.member(C, [C, OWN])
    with tapped(B, C, network.port) as tap:
        assert network.has_left(B) is None
    assert b"X-Headfirst-Proof: " in bytes(tap.answered[0])


def test_a_stranger_is_refused_before_its_body_is_read(network: Network) -> None:
    network.member(B, [B, C])
    with socket.create_connection((B, network.port), 5, (OWN, 0)) as stranger:
        stranger.sendall(b"POST / HTTP/1.1\r\nContent-Length: 1000\r\n\r\n")
        assert stranger.recv(65_536).startswith(b"HTTP/1.1 403 ")


def test_silent_strangers_hold_few_threads_and_no_member_up(network: Network) -> None:
    network.member(B, [B, C])
    client, request = (
        PeerClient(C, network.port, TOKEN, keys(C, [B])),
        messages.encode(RankRequest("member", "", "")),
    )
    before = threading.active_count()
    with ExitStack() as stack:
        for number in range(200):
            place = (f"127.0.1.{number % 100 + 1}", 0)
            stack.enter_context(socket.create_connection((B, network.port), 5, place))
        for _ in range(5):
            assert client.ask(B, request, limit_s=5, longest=messages.LONGEST)
        assert threading.active_count() - before <= 2 * PER_PEER
        assert network.has_left(B) is True, "the newest of the strangers is answered"
