"""A TCP port of a host's network as a port of 127.0.0.1, through the host's SSH, and HTTP requests to it."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import paramiko

from headfirst.common.errors import HeadfirstError
from headfirst.common.untrusted import joined
from headfirst.control.live.ssh_access.local import LocalConnection
from headfirst.control.live.ssh_access.ssh import CONNECT_TIMEOUT_S, HostConnection, ssh, transport_of
from headfirst.decide.cluster.login import HostAccess

_CHUNK = 65536


@contextlib.contextmanager
def tunnel(access: HostAccess, url: str, *, timed: bool = False) -> Iterator[str]:
    """`url`, an http address as the host sees it, as an address on this machine while this is open.

    An engine's port is open to its peers only, and a key sent to it in the clear stays off the network.
    `timed`: the times of the answers are measured, so that none may wait for others.
    Raises NotReadyError when the host does not answer. A closed port behind it shows on the first request.
    """
    with ssh(access) as connection, forward(connection, url) as local:
        if timed and not isinstance(connection, LocalConnection):
            _send_at_once(connection)
        yield local


def _send_at_once(connection: paramiko.SSHClient) -> None:
    """Make sshd send small pieces when they come.

    It sets TCP_NODELAY for connections with a terminal only. Without it the first token of an answer waits up
    to 40 ms for the acknowledgement of the header before it (benchmarks/tunnel.py). The program ends with
    the connection; a login that may not run one is measured with the delay.
    """
    with contextlib.suppress(paramiko.SSHException):
        channel = transport_of(connection).open_session()
        channel.get_pty()
        channel.exec_command("cat")


@contextlib.contextmanager
def forward(connection: HostConnection, url: str) -> Iterator[str]:
    """As `tunnel`, over a connection that is open already and stays open; to this machine it is none."""
    if isinstance(connection, LocalConnection):
        yield url
        return
    parts = urlsplit(url)
    target = (parts.hostname or "127.0.0.1", parts.port or 80)
    with _TunnelServer(connection, target) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield parts._replace(netloc=f"127.0.0.1:{server.server_address[1]}").geturl()
        finally:
            server.shutdown()
            thread.join()


class _TunnelServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    # A connection that is still open when the tunnel closes ends with the SSH connection.
    block_on_close = False
    # Connections that a client opens at once; of more than wait here the kernel drops the first packet.
    request_queue_size = 128

    def __init__(self, connection: paramiko.SSHClient, target: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _TunnelHandler)
        self.transport = transport_of(connection)
        self.target = target


class _TunnelHandler(socketserver.BaseRequestHandler):
    server: _TunnelServer

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            channel = self.server.transport.open_channel(
                "direct-tcpip", self.server.target, self.client_address, timeout=CONNECT_TIMEOUT_S
            )
        except paramiko.SSHException:
            return  # the port is closed: the client sees its connection end without an answer
        with contextlib.closing(channel):
            _pump(self.request, channel)


def _pump(local: Any, channel: paramiko.Channel) -> None:
    """Copy both ways until both sides have ended."""
    ways = {local: channel, channel: local}
    while ways:
        ready, _, _ = select.select(list(ways), [], [])
        for source in ready:
            try:
                data = source.recv(_CHUNK)
                if data:
                    ways[source].sendall(data)
                    continue
            except OSError:
                return
            if source is channel:  # the server has sent everything: the end
                return
            channel.shutdown_write()
            del ways[source]


# An engine generates a token for some of them, behind requests that are being served.
TIMEOUT_S = 15.0
ANSWER_BYTES = 1 << 20


def local_client(
    base_url: str, api_key: str | None = None, timeout: float | httpx.Timeout = TIMEOUT_S
) -> httpx.Client:
    """A client for the end of a tunnel on this machine; a proxy of the environment is not for it."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    return httpx.Client(base_url=base_url, headers=headers, timeout=timeout, trust_env=False)


def ask(
    client: httpx.Client, method: str, path: str, request: Any = None, *, limit: int = ANSWER_BYTES
) -> tuple[int, bytes]:
    """Status and body of an answer; UntrustedError for a body of more than `limit` bytes."""
    with client.stream(method, path, json=request, headers={"Accept-Encoding": "identity"}) as answer:
        return answer.status_code, joined(answer.iter_bytes(), what=f"the answer to {path}", limit=limit)


def no_answer_reason(error: HeadfirstError | httpx.HTTPError) -> str:
    """Why there was no answer, in words."""
    if isinstance(error, HeadfirstError):
        return error.what
    if isinstance(error, httpx.TimeoutException):
        return f"no answer within {TIMEOUT_S:.0f} s"
    if isinstance(error, (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError)):
        return "nothing answers at its port"
    return str(error)
