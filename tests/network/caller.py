"""Sends a word to PROTOCOL ADDRESS PORT of each line of standard input, and prints whether it came back."""

from __future__ import annotations

import socket
import sys


def main() -> None:
    """Print answers or closed for each line. A connection is kept, and used again where the line repeats."""
    kept: dict[str, socket.socket] = {}
    for line in sys.stdin:
        protocol, address, port = line.split()
        if line not in kept:
            kind = socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
            kept[line] = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
            kept[line].settimeout(1.5)
        try:
            if protocol == "udp" or kept[line].getsockname()[1] == 0:
                kept[line].connect((address, int(port)))
            kept[line].send(b"word")
            answers = kept[line].recv(9) == b"word"
        except OSError:
            answers = False
        if not answers:
            kept.pop(line).close()
        print("answers" if answers else "closed", flush=True)


if __name__ == "__main__":
    main()
