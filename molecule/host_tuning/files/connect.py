"""Try to connect to ports of a host, and print what comes of it.

Usage: connect.py HOST PORT...
Prints a line for each port: the port, then 0 or the name of the error; EAGAIN stands for silence.
"""

from __future__ import annotations

import errno
import socket
import sys


def main() -> None:
    """Try and print."""
    for port in sys.argv[2:]:
        with socket.socket() as probe:
            probe.settimeout(3)
            code = probe.connect_ex((sys.argv[1], int(port)))
        print(port, errno.errorcode.get(code, "0"))


if __name__ == "__main__":
    main()
