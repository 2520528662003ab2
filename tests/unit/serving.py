"""An HTTP server of a test on 127.0.0.1."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer

import httpx
import pytest


def free_port() -> int:
    """A port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class QuietHandler(BaseHTTPRequestHandler):
    """Keeps the tests' output clean."""

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def listening(server: BaseServer) -> Iterator[None]:
    """`server` answers until the block ends."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL of a server that answers with `handler` until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with listening(server):
        yield f"http://127.0.0.1:{server.server_port}"


@contextmanager
def over(transport: httpx.BaseTransport) -> Iterator[None]:
    """Clients of httpx that are made meanwhile send their requests over this transport."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx, "Client", partial(httpx.Client, transport=transport))
        yield
