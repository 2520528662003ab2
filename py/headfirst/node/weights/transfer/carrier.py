"""What carries the bytes of files between two members: RDMA where both have it and it works, else TCP.

A link offers its queue pair with a request. The listener answers with its own and with the descriptor of a
loan: the first bytes of the range, in memory that the link may read until its next request. Or it answers
with the bytes themselves, as it does without an offer; then, or when anything else fails, the two go on over
TCP alone.
"""

from __future__ import annotations

import re
import select
import socket
import threading
from collections.abc import Sequence

from headfirst.common.untrusted import UntrustedError
from headfirst.node.weights.transfer.rdma import OFFER_SIZE, Borrower, Lender, Port

OFFER = "X-Headfirst-Rdma"
"""Of a request: which of its devices a member uses, counted from 0, and its queue pair in hex, as
`0-1a2b…`. Of an answer: that its body is a loan."""
_OFFER_FORM = re.compile(rf"([0-9]{{1,3}})-((?:[0-9a-f]{{2}}){{{OFFER_SIZE}}})")


class Carrier:
    """Chooses for one node; it has no RDMA without `ports`. Safe to use from threads."""

    def __init__(self, ports: Sequence[Port] = ()) -> None:
        self._ports = ports
        self._lock = threading.Lock()
        self._failures: dict[str, str] = {}

    @property
    def name(self) -> str:
        """`rdma`, or `tcp` where there is none or it failed with any member."""
        return "rdma" if self._ports and not self._failures else "tcp"

    @property
    def failure(self) -> str:
        """Why the first member with which RDMA failed is served over TCP; "" where none is."""
        with self._lock:
            return next(iter(self._failures.values()), "")

    def has_rdma(self, member: str) -> bool:
        """Whether the member with this address is to be read from over RDMA."""
        return bool(self._ports) and member not in self._failures

    def port(self, number: int) -> Port:
        """The port that has this number, counted round and round; equal numbers on two nodes are linked."""
        return self._ports[number % len(self._ports)]

    def fail(self, member: str, why: str) -> None:
        """Use TCP with the member with this address from now on."""
        with self._lock:
            self._failures.setdefault(member, f"{member}: {why}")


def is_over(sock: socket.socket) -> bool:
    """Whether the peer has closed a connection, or sends what nobody asked for."""
    look = select.poll()
    look.register(sock, select.POLLIN)
    return bool(look.poll(0))


class Loans:
    """What a listener lends over one connection from `member`."""

    def __init__(self, carrier: Carrier, member: str) -> None:
        self._carrier = carrier
        self._member = member
        self._offer = ""
        self._lender: Lender | None = None

    def lender(self, offer: str | None) -> Lender | None:
        """Who lends what is asked for with this offer; None for TCP. UntrustedError: it is none."""
        if not self._carrier.has_rdma(self._member):
            return None
        if offer is None:
            self._carrier.fail(self._member, "it requires TCP")
            return None
        if offer != self._offer:
            self.close()
            try:
                self._lender = self._connected(offer)
            except ConnectionError as error:
                self._carrier.fail(self._member, str(error))
                return None
            self._offer = offer
        return self._lender

    def close(self) -> None:
        """Nothing that was lent can be read after that."""
        if self._lender:
            self._lender.close()
            self._lender, self._offer = None, ""

    def _connected(self, offer: str) -> Lender:
        match = _OFFER_FORM.fullmatch(offer)
        if match is None:
            raise UntrustedError("the offer of a member is not a queue pair")
        lender = Lender(self._carrier.port(int(match[1])))
        try:
            lender.connect(bytes.fromhex(match[2]))
        except BaseException:
            lender.close()
            raise
        return lender


class Loan:
    """The bytes of a file up to `end`, lent by a member."""

    def __init__(self, debts: Debts, sock: socket.socket, descriptor: bytes, end: int) -> None:
        self._debts = debts
        self._sock = sock
        self._descriptor = descriptor
        self._read = 0
        self.end = end

    def fill(self, view: memoryview) -> None:
        """Read the next bytes, as many as `view` has. Raises ConnectionError."""
        try:
            self._debts.read(self._descriptor, self._read, view)
        except ConnectionError as error:
            if not is_over(self._sock):  # a member that has ended is no fault of RDMA
                self._debts.fail(str(error))
            raise
        self._read += len(view)


class Debts:
    """What a link borrows from `member`, into `memory`, over the port with this number. For one thread."""

    def __init__(self, carrier: Carrier, number: int, member: str, memory: memoryview) -> None:
        self._carrier = carrier
        self._number = number
        self._member = member
        self._memory = memory
        self._borrower: Borrower | None = None
        self._lender = b""

    def offer(self) -> str | None:
        """What to offer with a request; None for TCP."""
        if not self._carrier.has_rdma(self._member):
            self.close()
            return None
        if self._borrower is None:
            try:
                self._borrower = Borrower(self._carrier.port(self._number), self._memory)
            except ConnectionError as error:
                self.fail(str(error))
                return None
        return f"{self._number}-{self._borrower.offer.hex()}"

    def take(self, body: bytes, sock: socket.socket, end: int) -> Loan:
        """The loan that is the body of an answer, from the socket of the link. Raises ConnectionError."""
        offer, descriptor = body[:OFFER_SIZE], body[OFFER_SIZE:]
        if self._borrower and not self._lender:
            try:
                self._borrower.connect(offer)
            except (ConnectionError, UntrustedError) as error:
                self.fail(str(error))
                raise ConnectionError(str(error)) from error
            self._lender = offer
        if offer != self._lender:
            raise ConnectionError("the connection over RDMA was replaced")
        return Loan(self, sock, descriptor, end)

    def read(self, descriptor: bytes, start: int, view: memoryview) -> None:
        """Read a part of a loan. Raises ConnectionError."""
        if self._borrower is None:
            raise ConnectionError("the connection over RDMA is closed")
        try:
            self._borrower.read(descriptor, view, start)
        except (ConnectionError, UntrustedError) as error:
            raise ConnectionError(str(error)) from error

    def fail(self, why: str) -> None:
        """Use TCP from now on."""
        self._carrier.fail(self._member, why)
        self.close()

    def close(self) -> None:
        """Read no more; the next offer is a new one."""
        if self._borrower:
            self._borrower.close()
            self._borrower, self._lender = None, b""
