"""A program that answers at TCP and UDP ports, IPv4 and IPv6, in a cgroup. Usage: listener.py CGROUP PORTS"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
from pathlib import Path


def main() -> None:
    """Answer the address of the caller until the end."""
    (Path(sys.argv[1]) / "cgroup.procs").write_text(str(os.getpid()))
    watched = selectors.DefaultSelector()
    for port in map(int, sys.argv[2:]):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            place = socket.socket(socket.AF_INET6, kind)
            place.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            place.bind(("::", port))
            if kind == socket.SOCK_STREAM:
                place.listen()
            watched.register(place, selectors.EVENT_READ)
    print("listens", flush=True)
    callers: list[socket.socket] = []
    while True:
        for key, _ in watched.select():
            place = key.fileobj
            assert isinstance(place, socket.socket)
            with contextlib.suppress(OSError):  # a caller that is gone
                if place in callers:
                    place.send(place.recv(99))
                elif place.type == socket.SOCK_DGRAM:
                    data, caller = place.recvfrom(99)
                    place.sendto(data, caller)
                else:
                    callers.append(place.accept()[0])
                    watched.register(callers[-1], selectors.EVENT_READ)


if __name__ == "__main__":
    main()
