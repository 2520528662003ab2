"""Serve a complete checkpoint to known peers over HTTP: its manifest, and the files that it names."""

from __future__ import annotations

import hmac
import re
import time
from collections.abc import Collection
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

from headfirst.errors import NotReadyError
from headfirst.weights.manifest import Manifest, load
from headfirst.weights.progress import Progress

_SLICE = 64 * 1024 * 1024


class CheckpointServer(ThreadingHTTPServer):
    """Answers `GET /manifest` and `GET /files/<name>` (`Range: bytes=N-` too) to `peers` with `token`."""

    daemon_threads = True

    def __init__(
        self, folder: Path, address: tuple[str, int], peers: Collection[str], token: str, progress: Progress
    ) -> None:
        manifest = load(folder)
        if manifest is None:
            raise NotReadyError("there is no complete checkpoint to serve", where=str(folder))
        self.folder = folder
        self.manifest: Manifest = manifest
        self.peers = frozenset(peers)
        self.authorization = f"Bearer {token}"
        self.progress = progress
        self.last_activity = time.monotonic()
        try:
            super().__init__(address, _Handler)
        except OSError as error:
            raise NotReadyError(
                f"cannot listen on {address[0]} port {address[1]}: {error.strerror}",
                hint="Set weights_port to a free port, and address to one of this host's own.",
            ) from error

    def serve_until_idle(self, limit_s: float) -> None:
        """Serve until nobody has asked for anything for `limit_s` seconds."""
        self.timeout = min(limit_s, 10)
        while time.monotonic() - self.last_activity < limit_s:
            self.handle_request()


class _Handler(BaseHTTPRequestHandler):
    server: CheckpointServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Refuse strangers first, then names that are not in the manifest."""
        self.server.last_activity = time.monotonic()
        if self.client_address[0] not in self.server.peers:
            return self._refuse(HTTPStatus.FORBIDDEN)
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), self.server.authorization.encode()):
            return self._refuse(HTTPStatus.UNAUTHORIZED)
        if self.path == "/manifest":
            return self._send_manifest()
        name = unquote(self.path.removeprefix("/files/"))
        if not self.path.startswith("/files/") or name not in self.server.manifest.files:
            return self._refuse(HTTPStatus.NOT_FOUND)
        return self._send_file(name)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the job's progress tells what was sent."""

    def _refuse(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_manifest(self) -> None:
        body = self.server.manifest.dumps()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_file(self, name: str) -> None:
        size = self.server.manifest.files[name].size
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        with (self.server.folder / name).open("rb") as file:
            self.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
            self.send_header("Content-Length", str(max(0, size - start)))
            self.end_headers()
            for offset in range(start, size, _SLICE):
                sent = self.connection.sendfile(file, offset, min(_SLICE, size - offset))
                self.server.progress.add(sent)
                self.server.last_activity = time.monotonic()


def serve(
    folder: Path, address: str, port: int, peers: Collection[str], token: str, idle_limit_s: float
) -> None:
    """Serve `folder` on `address`:`port` until idle for `idle_limit_s` seconds, or ended by a signal.

    Progress counts the bytes sent to all peers; the first report says that the server listens.
    """
    progress = Progress("serve")
    server = CheckpointServer(folder, (address, port), peers, token, progress)
    progress.total = server.manifest.size * len(server.peers)
    with server, progress:
        server.serve_until_idle(idle_limit_s)
