"""A TCP forwarder on loopback that records what passes, as somebody on the wire sees it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class WireTap:
    """`asked` and `answered`: the bytes of each connection, by direction, in the order of the connections."""

    asked: list[bytearray] = field(default_factory=list)
    answered: list[bytearray] = field(default_factory=list)

    @property
    def all(self) -> bytes:
        return b"\n".join(bytes(data) for data in (*self.asked, *self.answered))


@contextmanager
def tapped(own: str, target: str, port: int) -> Iterator[WireTap]:
    """Listens on own:port and forwards to target:port, from the address `own`."""
    tap = WireTap()
    with socket.create_server((own, port)) as server:
        thread = threading.Thread(target=_accept, args=(server, own, target, port, tap), daemon=True)
        thread.start()
        yield tap
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def _accept(server: socket.socket, own: str, target: str, port: int, tap: WireTap) -> None:
    with suppress(OSError):  # the block has ended
        while True:
            near, _ = server.accept()
            try:
                far = socket.create_connection((target, port), source_address=(own, 0))
            except OSError:
                near.close()
                continue
            for source, sink, record in ((near, far, tap.asked), (far, near, tap.answered)):
                record.append(bytearray())
                threading.Thread(target=_pass_on, args=(source, sink, record[-1]), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket, record: bytearray) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            record += data
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
