"""Opens connections and sends requests whose bodies never end, without a key, then asks as other clients do.

Usage: hold.py ADDRESS CERTIFICATE CONNECTIONS
Prints as JSON how many connections were accepted, whether one more of the same address was, the status that
another address gets meanwhile, and the status that each held request got in the end.
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
    print(json.dumps({"held": len(held), "more": more, "other": status, "ends": ends}))


if __name__ == "__main__":
    main()
