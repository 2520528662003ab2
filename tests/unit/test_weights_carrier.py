"""Loans over RDMA between members, by an adapter that is played in this process, and the way back to TCP."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from headfirst.common.untrusted import UntrustedError
from headfirst.node.peers.authentication import Admission
from headfirst.node.weights import cli
from headfirst.node.weights.proof.hashing import PIECE
from headfirst.node.weights.transfer import carrier
from headfirst.node.weights.transfer.carrier import OFFER, Carrier, Debts, Loan, Loans
from headfirst.node.weights.transfer.link import Link, Refused, _Request
from headfirst.node.weights.transfer.rdma import LOAN, OFFER_SIZE, Port
from headfirst.node.weights.transfer.transport import Transport
from transfer_hosts import Source, Start, await_names, await_that, hosts, linked, serving, start

__all__ = ["hosts", "start"]  # fixtures

GOOD, BROKEN = Port("mlx5_0"), Port("broken")


class Adapter:
    """What all devices lend, by their queue pairs; `reads` before the next ones fail."""

    def __init__(self) -> None:
        self.lent: dict[bytes, bytes] = {}
        self.linked: dict[bytes, bytes] = {}
        self.ports: set[tuple[str, Port]] = set()
        self.reads = 10**9
        self._numbers = count(1)

    def open(self, what: str, port: Port) -> bytes:
        if port == BROKEN:
            raise ConnectionError("cannot open broken")
        self.ports.add((what, port))
        return next(self._numbers).to_bytes(OFFER_SIZE, "big")


class End:
    def __init__(self, adapter: Adapter, what: str, port: Port) -> None:
        self.adapter = adapter
        self.offer = adapter.open(what, port)

    def connect(self, offer: bytes) -> None:
        if not int.from_bytes(offer, "big"):
            raise UntrustedError("the offer is bad")
        self.adapter.linked[self.offer] = offer

    def lend(self, file: int, start: int, size: int) -> bytes:
        descriptor = secrets.token_bytes(8)
        self.adapter.lent[self.offer] = os.pread(file, size, start)
        return descriptor

    def read(self, descriptor: bytes, into: memoryview, start: int = 0) -> None:
        lender = self.adapter.linked[self.offer]
        if not self.adapter.reads or self.adapter.linked.get(lender) != self.offer:
            raise ConnectionError("the remote read failed")
        self.adapter.reads -= 1
        data = self.adapter.lent[lender][start : start + len(into)]
        if len(data) < len(into):
            raise UntrustedError("less is lent")
        into[:] = data

    def close(self) -> None:
        self.adapter.lent.pop(self.offer, None)
        self.adapter.linked.pop(self.offer, None)


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Adapter]:
    adapter = Adapter()
    monkeypatch.setattr(carrier, "Lender", lambda port: End(adapter, "lender", port))
    monkeypatch.setattr(carrier, "Borrower", lambda port, _memory: End(adapter, "borrower", port))
    yield adapter
    await_that(lambda: not adapter.linked)  # all are closed with their connections


def copied(start: Start, tmp_path: Path, *ports: list[Port], connections: int = 2) -> list[Transport]:
    """A chain of as many members as have ports; each has the whole afterwards."""
    source = Source(tmp_path / "0", tiny=100, more=PIECE + 1, large=3 * LOAN + 5)
    nodes = [start(index, len(ports), rdma=own, connections=connections) for index, own in enumerate(ports)]
    source.offer(nodes[0])
    for index, node in list(enumerate(nodes))[1:]:
        source.receive(node, tmp_path / str(index))
    for index, node in list(enumerate(nodes))[1:]:
        await_names(node, source.proofs)
        assert source.same(tmp_path / str(index))
        assert node.traffic.received >= source.size
    for node in nodes:
        node.__exit__()
    return nodes


def test_a_chain_copies_everything_over_loans(start: Start, tmp_path: Path, adapter: Adapter) -> None:
    nodes = copied(start, tmp_path, [GOOD], [GOOD], [GOOD])
    assert [node.traffic.carrier for node in nodes] == ["rdma"] * 3
    assert not any(node.fall_back for node in nodes)
    assert nodes[0].traffic.sent == nodes[1].traffic.received == nodes[1].traffic.sent
    assert adapter.ports == {("lender", GOOD), ("borrower", GOOD)}


def test_connections_are_spread_over_the_ports_and_equal_ones_are_linked(
    start: Start, tmp_path: Path, adapter: Adapter
) -> None:
    rails = [Port("mlx5_0"), Port("mlx5_1")]
    nodes = copied(start, tmp_path, rails, [Port("other0"), Port("other1")], connections=4)
    assert nodes[1].traffic.carrier == "rdma"
    assert {port.device for what, port in adapter.ports if what == "borrower"} == {"other0", "other1"}
    assert {port.device for what, port in adapter.ports if what == "lender"} == {"mlx5_0", "mlx5_1"}


@pytest.mark.parametrize(
    ("ports", "why"),
    [
        (([GOOD], [BROKEN]), ["it requires TCP", "cannot open broken"]),
        (([BROKEN], [GOOD]), ["cannot open broken", "it sends over TCP"]),
        (([GOOD], []), ["it requires TCP", ""]),
        (([], [GOOD]), ["", "it sends over TCP"]),
    ],
)
def test_without_a_device_on_one_side_both_go_on_over_tcp(
    ports: tuple[list[Port], list[Port]], why: list[str], start: Start, tmp_path: Path, adapter: Adapter
) -> None:
    nodes = copied(start, tmp_path, *ports)
    assert [node.traffic.carrier for node in nodes] == ["tcp", "tcp"]
    for node, expected in zip(nodes, why, strict=True):
        assert node.fall_back.endswith(expected) and bool(node.fall_back) == bool(expected)


@pytest.mark.parametrize("reads", [0, 1, LOAN // PIECE])
def test_after_a_read_that_fails_they_go_on_over_tcp(
    reads: int, start: Start, tmp_path: Path, adapter: Adapter
) -> None:
    adapter.reads = reads
    head, node = copied(start, tmp_path, [GOOD], [GOOD])
    assert node.traffic.carrier == head.traffic.carrier == "tcp"
    assert node.fall_back.endswith("the remote read failed")


def debts(rdma: Carrier, member: str) -> Debts:
    return Debts(rdma, 0, member, memoryview(bytearray(PIECE)))


def test_a_member_that_ended_is_no_failure_of_rdma(adapter: Adapter) -> None:
    own = Carrier([GOOD])
    borrowing = debts(own, "10.0.0.1")
    assert borrowing.offer()
    here, there = socket.socketpair()
    with here, there:
        loan = borrowing.take((7).to_bytes(OFFER_SIZE, "big") + bytes(16), here, PIECE)
        there.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError):
            loan.fill(memoryview(bytearray(PIECE)))
    assert own.name == "rdma" and own.has_rdma("10.0.0.1")
    borrowing.close()


def test_another_queue_pair_on_the_same_connection_is_not_read_from(adapter: Adapter) -> None:
    borrowing = debts(Carrier([GOOD]), "10.0.0.1")
    borrowing.offer()
    here, there = socket.socketpair()
    with here, there:
        borrowing.take((7).to_bytes(OFFER_SIZE, "big") + bytes(16), here, PIECE)
        with pytest.raises(ConnectionError, match="was replaced"):
            borrowing.take((8).to_bytes(OFFER_SIZE, "big") + bytes(16), here, PIECE)
    borrowing.close()


@pytest.mark.parametrize(
    "offer",
    ["0", "0-", "-1-" + "01" * OFFER_SIZE, "0-" + "01" * (OFFER_SIZE - 1), "0-" + "0A" * OFFER_SIZE,
     "0-" + "00" * OFFER_SIZE, "1000-" + "01" * OFFER_SIZE, "0-" + "01" * OFFER_SIZE + "\n"],
)  # fmt: skip
def test_a_bad_offer_is_refused(offer: str, adapter: Adapter) -> None:
    with pytest.raises(UntrustedError):
        Loans(Carrier([GOOD]), "10.0.0.2").lender(offer)


def test_an_offer_that_the_request_does_not_prove_is_refused(
    hosts: list[str], tmp_path: Path, adapter: Adapter
) -> None:
    source = Source(tmp_path, file=PIECE)
    proof = source.proofs["sub/file"]
    path, span = f"/{proof.version}/sub/file", f"bytes=0-{PIECE - 1}"
    with serving(source, hosts[0], [hosts[1]], carrier=Carrier([GOOD])) as head:
        link = linked(hosts[1], hosts[0])
        headers = {"Range": span, OFFER: "0-" + "01" * 27}
        answer = link._ask(_Request("GET", path, ("GET", path, span), headers, 5))
        link.close()
        assert answer.status == 401 and head.sent == 0
    assert not adapter.ports


def test_a_loan_that_no_member_proves_is_not_read(
    hosts: list[str], tmp_path: Path, adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Admission, "answer", lambda *_: {})
    source = Source(tmp_path, file=PIECE)
    proof = source.proofs["sub/file"]
    with serving(source, hosts[0], [hosts[1]], carrier=Carrier([GOOD])):
        link = linked(hosts[1], hosts[0], debts=debts(Carrier([GOOD]), hosts[0]))
        with pytest.raises(Exception, match="not by a member"):
            link.request(proof.version, "sub/file", 0, PIECE)
        link.close()


def test_a_loan_goes_as_far_as_what_is_there_and_no_further_than_it_may(
    hosts: list[str], tmp_path: Path, adapter: Adapter
) -> None:
    source = Source(tmp_path, file=2 * LOAN)
    proof = source.proofs["sub/file"]
    with serving(source, hosts[0], [hosts[1]], carrier=Carrier([GOOD])):
        link = linked(hosts[1], hosts[0], debts=debts(Carrier([GOOD]), hosts[0]))
        ends = []
        for first, end in ((0, 2 * LOAN), (LOAN, 2 * LOAN), (PIECE, 2 * PIECE)):
            loan = link.request(proof.version, "sub/file", first, end)
            assert isinstance(loan, Loan)
            ends.append(loan.end)
        assert ends == [LOAN, 2 * LOAN, 2 * PIECE]
        link.close()
        with pytest.raises(Refused):  # beyond the end
            link.request(proof.version, "sub/file", 2 * LOAN, 3 * LOAN)
        link.close()


@pytest.mark.parametrize("text", ["mlx5_0", "mlx5_0:1", "mlx5_0:0:3", ":1:3", "../x:1:3", "a:1:3 b:1:3"])
def test_a_port_that_is_none_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused("--rdma", text, capsys=capsys).count("DEVICE:PORT:GID_INDEX") == 1


def test_rdma_is_not_together_with_encryption(capsys: pytest.CaptureFixture[str]) -> None:
    assert "exclude each other" in refused("--rdma", "mlx5_0:1:3", "--encrypt", capsys=capsys)


def test_ports_are_read() -> None:
    assert Port.parse("mlx5_bond_0:2:11") == Port("mlx5_bond_0", 2, 11)


def refused(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as exit:
        cli.main(
            [
                "pipeline",
                "/nowhere",
                "--member",
                "10.0.0.1",
                "--address",
                "10.0.0.1",
                "--port",
                "5010",
                *words,
            ]
        )
    assert exit.value.code == 2
    return capsys.readouterr().err


def test_what_is_asked_of_a_link_without_memory_goes_over_tcp(start: Start) -> None:
    node = start(0, 2, rdma=[GOOD])
    assert isinstance(link := node._link(0, 1, None), Link) and link._debts is None
