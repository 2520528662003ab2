"""A carrier over RDMA: a node lends spans of its files in registered memory, its neighbour reads them.

Unproven over RDMA hardware: tests run it over Soft-RoCE (Linux's rdma_rxe), which is slower than TCP.

Nothing listens here. Both ends exchange their `offer` and the descriptors over a connection that has proven
who they are; an offer names one queue pair, and the adapter accepts reads from the queue pair that was
offered, of memory of the same Lender, and no write at all. Bytes travel in the clear, as over plain TCP: the
receiver proves each piece. A Borrower's memory cannot be written by others after `read` has returned.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import secrets
import select
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from headfirst.common.untrusted import UntrustedError

LOAN = 8 << 20  # bytes; large, since each loan costs a question over the control connection
TIME_LIMIT = 30.0  # seconds for one read; a dead peer shows after 1 to 5
_ACK_TIMEOUT = 14  # 4.096 µs * 2**14 = 67 ms; an adapter repeats _RETRIES times and may wait longer each time
_RETRIES = 6  # 7, the highest, repeats without end in Linux's rdma_rxe
_HOPS = 64  # RoCE v2 may cross routers
_RANGES = {  # of an offer's numbers, in its order
    "queue pair": (2, 2**24 - 1),
    "sequence number": (0, 2**24 - 1),
    "LID": (0, 2**16 - 1),
    "MTU": (1, 5),
}
_OFFER = struct.Struct("!IIHB16s")  # queue pair, sequence number, LID, MTU as ibv_mtu, GID
_DESCRIPTOR = struct.Struct("!QII")  # address, remote key, bytes
OFFER_SIZE = _OFFER.size
_PORT_FORM = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,63}):([1-9][0-9]{0,2}):(0|[1-9][0-9]{0,3})")


@dataclass(frozen=True)
class Port:
    """A port of an RDMA device and the entry of its GID table that peers reach it by.

    RoCE: an entry of type RoCE v2 whose address can be routed. InfiniBand: 0.
    """

    device: str
    number: int = 1
    gid_index: int = 0

    @staticmethod
    def parse(text: str) -> Port:
        """A port as DEVICE:PORT:GID_INDEX, such as mlx5_0:1:3. Raises ValueError."""
        match = _PORT_FORM.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not of the form DEVICE:PORT:GID_INDEX, such as mlx5_0:1:3")
        return Port(match[1], int(match[2]), int(match[3]))


def buffer(size: int) -> memoryview:
    """Zeroed memory that can be registered: a child process does not share it, so no page of it moves."""
    memory = mmap.mmap(-1, size)
    memory.madvise(mmap.MADV_DONTFORK)
    return memoryview(memory)


def available() -> list[str]:
    """Devices with an active first port; none where ibverbs, libibverbs.so.1 or a driver is missing."""
    names = []
    try:
        import ibverbs

        for device in ibverbs.get_device_list():
            with ExitStack() as stack:
                context = _closing(stack, device.open())
                if context.query_port(1).state == ibverbs.PortState.ACTIVE:
                    names.append(str(device.name))
    except (ImportError, OSError):  # OSError: the kernel has no RDMA, or the device is not for this user
        return []
    return names


class _End:
    """One end of a connection; closing it ends every access of the peer and of the adapter to its memory."""

    def __init__(self, port: Port, memory: memoryview, access: str) -> None:
        """Register `memory`; `access` is what others may do with it, as ibverbs.AccessFlags names it."""
        self._port = port
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._number = secrets.randbelow(2**24)
        with ExitStack() as stack, _failures(f"open {port.device} port {port.number}"):
            import ibverbs

            self._verbs = ibverbs
            self._access = int(ibverbs.AccessFlags[access])
            devices = (device for device in ibverbs.get_device_list() if device.name == port.device)
            device = next(devices, None)
            if device is None:
                raise ConnectionError(f"there is no RDMA device {port.device}")
            context = _closing(stack, device.open())
            # A protection domain of its own: its keys are worth nothing on any other connection.
            domain = _closing(stack, context.alloc_pd())
            self._events = _closing(stack, context.create_comp_channel())
            self._done = _closing(stack, context.create_cq(4, self._events))
            self._memory = _closing(stack, domain.reg_mr(self._address, memory.nbytes, self._access))
            pair = ibverbs.QPInitAttr(send_cq=self._done, recv_cq=self._done, max_send_wr=2, max_recv_wr=1)
            self._pair = _closing(stack, domain.create_qp(pair))
            state = context.query_port(port.number)
            self._mtu = int(state.active_mtu)
            gid = bytes(context.query_gid(port.number, port.gid_index).raw)
            self.offer = _OFFER.pack(self._pair.qp_num, self._number, state.lid, self._mtu, gid)
            self._resources = stack.pop_all()

    def connect(self, offer: bytes) -> None:
        """Join the peer's queue pair; raises UntrustedError for a bad offer, ConnectionError otherwise."""
        remote = _parsed_offer(offer, self._verbs)
        remote.mtu = min(remote.mtu, self._mtu)
        with _failures("connect"):
            remote_access = self._access & self._verbs.AccessFlags.REMOTE_READ
            self._pair.to_init(self._port.number, int(remote_access))
            self._pair.to_rtr(remote, sgid_index=self._port.gid_index, hop_limit=_HOPS)
            self._pair.to_rts(self._number, timeout=_ACK_TIMEOUT, retry_cnt=_RETRIES)

    def _wait(self, time_limit: float) -> Any:
        """The next completion. The second poll finds what was completed before the event was armed."""
        end = time.monotonic() + time_limit
        events = select.poll()
        events.register(self._events.fd, select.POLLIN)
        while not (results := self._done.poll(1)):
            self._done.req_notify()
            if results := self._done.poll(1):
                break
            if not events.poll(max(0.0, end - time.monotonic()) * 1000):
                raise ConnectionError(f"the remote read took more than {time_limit:g} s")
            self._events.get_cq_event()
            self._done.ack_events(1)
        return results[0]

    def close(self) -> None:
        """Disconnect and release; can be called again."""
        self._resources.close()


class Lender(_End):
    """Lends spans of files to one Borrower, one at a time."""

    def __init__(self, port: Port, size: int = LOAN) -> None:
        self._lent = buffer(size)
        super().__init__(port, self._lent, "REMOTE_READ")

    def lend(self, file: int, start: int, size: int) -> bytes:
        """Read a span of an open file and return its descriptor, which is good until the next call.

        Raises OSError where it cannot be read whole.
        """
        if not 0 < size <= len(self._lent):
            raise ValueError(f"{size} bytes do not fit into a loan of {len(self._lent)}")
        filled = 0
        while filled < size:
            count = os.preadv(file, [self._lent[filled:size]], start + filled)
            if not count:
                raise OSError(errno.ESTALE, f"the file ends at {start + filled}, before {start + size}")
            filled += count
        return _DESCRIPTOR.pack(self._address, self._memory.rkey, size)


class Borrower(_End):
    """Reads what one Lender lends, straight into `memory`; for one thread."""

    def __init__(self, port: Port, memory: memoryview) -> None:
        self._size = memory.nbytes
        super().__init__(port, memory, "LOCAL_WRITE")

    def read(
        self, descriptor: bytes, into: memoryview, start: int = 0, time_limit: float = TIME_LIMIT
    ) -> None:
        """Fill `into`, a part of the registered memory, with what is lent from byte `start` on.

        Raises UntrustedError for a bad descriptor, or one that lends less. Raises ConnectionError where the
        peer is gone or refuses, or the time is over; the connection is closed then and no byte arrives any
        more.
        """
        offset = ctypes.addressof(ctypes.c_char.from_buffer(into)) - self._address
        if not 0 <= offset <= self._size - into.nbytes:
            raise ValueError("the buffer is not a part of the registered memory")
        address, key = _parsed_descriptor(descriptor, start + into.nbytes)
        verbs = self._verbs
        try:
            with _failures("read"):
                request = verbs.SendWR(
                    sg_list=[self._memory.sge(into.nbytes, offset)],
                    opcode=verbs.WROpcode.RDMA_READ,
                    send_flags=verbs.SendFlags.SIGNALED,
                    remote_addr=address + start,
                    rkey=key,
                )
                self._pair.post_send(request)
                result = self._wait(time_limit)
            if not result.is_success:
                raise ConnectionError(f"the remote read failed: {result.status_str}")
        except BaseException:
            self.close()
            raise


def _parsed_offer(offer: bytes, verbs: Any) -> Any:
    """A peer's offer as ibverbs.QPInfo."""
    if len(offer) != _OFFER.size:
        raise UntrustedError(f"the offer has {len(offer)} bytes, not {_OFFER.size}")
    pair, number, lid, mtu, gid = _OFFER.unpack(offer)
    for (what, (low, high)), value in zip(_RANGES.items(), (pair, number, lid, mtu), strict=True):
        if not low <= value <= high:
            raise UntrustedError(f"the {what} of the offer is not from {low} to {high}: {value}")
    if not any(gid) or gid[0] == 0xFF:
        raise UntrustedError("the GID of the offer is not the address of one port")
    return verbs.QPInfo(qp_num=pair, psn=number, lid=lid, gid=gid, port=1, mtu=mtu)


def _parsed_descriptor(descriptor: bytes, size: int) -> tuple[int, int]:
    """Address and remote key of a loan of `size` bytes or more."""
    if len(descriptor) != _DESCRIPTOR.size:
        raise UntrustedError(f"the descriptor has {len(descriptor)} bytes, not {_DESCRIPTOR.size}")
    address, key, lent = _DESCRIPTOR.unpack(descriptor)
    if lent < size or address + size >= 2**64:
        raise UntrustedError(f"the descriptor lends {lent} bytes and not {size}")
    return address, key


def _closing(stack: ExitStack, resource: Any) -> Any:
    stack.callback(resource.close)
    return resource


@contextmanager
def _failures(what: str) -> Iterator[None]:
    """What libibverbs refuses, as ConnectionError."""
    try:
        yield
    except ConnectionError:
        raise
    except (ImportError, OSError, ValueError) as error:
        raise ConnectionError(f"cannot {what}: {error}") from error
