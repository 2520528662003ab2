"""Opens connections and sends requests whose bodies never end, without a key, then asks as other clients do.

Usage: hold.py ADDRESS CERTIFICATE CONNECTIONS
Prints as JSON how many connections were accepted, whether one more of the same address was, the status that
another address gets meanwhile, the status that each held request got in the end, and how many of 100 such
requests over one connection of HTTP/2 got which status.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import sys

REQUEST = b"POST /chat HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nthree"


def main() -> None:
    """Carry out the command."""
    address, certificate, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    context = ssl.create_default_context(cafile=certificate)

    def connect(source: str, timeout_s: float) -> ssl.SSLSocket:
        plain = socket.create_connection((address, 443), timeout_s, (source, 0))
        return context.wrap_socket(plain, server_hostname=address)

    held = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            held.append(connect(address, 60))
            held[-1].sendall(REQUEST)
    more = True
    try:
        connect(address, 10).close()
    except OSError:
        more = False
    other = http.client.HTTPSConnection(address, context=context, timeout=10, source_address=("127.0.0.1", 0))
    other.request("GET", "/v1/models")
    status = other.getresponse().status
    ends = sorted({one.recv(12)[-3:].decode() for one in held})
    counts = answers(address, certificate)
    print(json.dumps({"held": len(held), "more": more, "other": status, "ends": ends, "http2": counts}))


def answers(address: str, certificate: str) -> dict[str, int]:
    """Send 100 requests over one connection of HTTP/2; return how many got each status."""
    context = ssl.create_default_context(cafile=certificate)
    context.set_alpn_protocols(["h2"])
    plain = socket.create_connection((address, 443), 60, ("127.0.0.2", 0))
    with context.wrap_socket(plain, server_hostname=address) as connection:
        begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
        # POST / of the authority "a", whose body is to follow.
        posts = [frame(1, 4, stream, b"\x83\x84\x87\x41\x01a") for stream in range(1, 200, 2)]
        connection.sendall(begin + b"".join(posts))
        found, counts = b"", {"408": 0, "429": 0}
        while sum(counts.values()) < len(posts):
            part = connection.recv(65536)
            if not part:
                break
            found += part
            # As HAProxy writes `:status`.
            counts = {status: found.count(b"\x48\x03" + status.encode()) for status in counts}
        return counts


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


if __name__ == "__main__":
    main()
