"""Hosts that listen on ports and connect to each other's at the same time; standard library, Python 3.8+."""

from __future__ import annotations

import errno
import socket
import socketserver
import threading
import time
import typing as t

CONNECT_TIMEOUT_S = 3.0
# A listener of ours speaks as soon as it is connected to; somebody else's service waits for us.
GREETING_TIMEOUT_S = 3.0
PAUSE_S = 0.3

Target = t.Tuple[str, int]


class PortMeeting:
    """One host's part: listen on `ports`, connect to `targets`, until all have met or the time is up.

    `address` is this host's own, `peers` are those that connect to each of `ports`; `token` distinguishes our
    listeners from others.
    """

    def __init__(
        self, address: str, ports: t.List[int], peers: t.List[str], targets: t.List[Target], token: str
    ) -> None:
        self._address, self._peers, self._targets = address, peers, targets
        self._greeting = "headfirst {}\n".format(token).encode()
        self._settled: t.Dict[Target, t.Tuple[str, str]] = {}
        self._arrived: t.Set[t.Tuple[str, int]] = set()
        self._listening: t.Dict[int, str] = {}
        self._servers: t.List[_GreetingServer] = []
        for port in ports:
            self._listen(port)

    def hold(self, seconds: float) -> t.Dict[str, t.Any]:
        """Meet the others and return {listening, reached, arrived} (see module `reach`)."""
        end = time.monotonic() + seconds
        tries = [
            threading.Thread(target=self._try, args=(target, end), daemon=True) for target in self._targets
        ]
        for thread in tries:
            thread.start()
        for thread in tries:
            thread.join()
        while self._awaited() and time.monotonic() < end:
            time.sleep(PAUSE_S)
        for server in self._servers:
            server.shutdown()
            server.server_close()
        return {
            "listening": {str(port): state for port, state in self._listening.items()},
            "reached": [
                {"address": address, "port": port, "state": state, "words": words}
                for (address, port), (state, words) in sorted(self._settled.items())
            ],
            "arrived": [{"address": address, "port": port} for address, port in sorted(self._arrived)],
        }

    def _awaited(self) -> bool:
        expected = {(peer, server.server_address[1]) for peer in self._peers for server in self._servers}
        return bool(expected - self._arrived)

    def _listen(self, port: int) -> None:
        try:
            server = _GreetingServer(("", port), self._greeting, self._arrived)
        except OSError as error:
            self._listening[port] = "held" if error.errno == errno.EADDRINUSE else str(error.strerror)
            return
        self._listening[port] = "open"
        self._servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()

    def _try(self, target: Target, end: float) -> None:
        """Connect until it works, somebody else answers, or the time is up: the peer may come later."""
        while True:
            self._settled[target] = state, _words = self._connect(target)
            if state in ("ok", "stranger") or time.monotonic() + PAUSE_S > end:
                return
            time.sleep(PAUSE_S)

    def _connect(self, target: Target) -> t.Tuple[str, str]:
        try:
            connection = socket.create_connection(target, timeout=CONNECT_TIMEOUT_S)
        except socket.timeout:
            return "dropped", "no answer"
        except ConnectionRefusedError as error:
            return "refused", str(error.strerror)
        except OSError as error:
            return "unreachable", str(error.strerror or error)
        with connection:
            try:
                connection.settimeout(GREETING_TIMEOUT_S)
                if connection.makefile("rb").readline(100) != self._greeting:
                    return "stranger", "something else answers"
                connection.sendall("{}\n".format(self._address).encode())
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)  # closed by the peer once it has read who came
            except OSError as error:
                return "stranger", "connected, then: {}".format(error)
        return "ok", ""


class _GreetingServer(socketserver.ThreadingTCPServer):
    """Greets whoever connects, and notes who it was."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, where: Target, greeting: bytes, arrived: t.Set[t.Tuple[str, int]]) -> None:
        self.greeting, self.arrived = greeting, arrived
        super().__init__(where, _GreetingHandler)


class _GreetingHandler(socketserver.StreamRequestHandler):
    timeout = GREETING_TIMEOUT_S
    server: _GreetingServer

    def handle(self) -> None:
        """Speak first, then read one line. A scanner that goes away without a word is nobody."""
        try:
            self.wfile.write(self.server.greeting)
            who = self.rfile.readline(100).decode("ascii", "replace").strip()
        except OSError:
            return
        if who:
            self.server.arrived.add((who, self.server.server_address[1]))
