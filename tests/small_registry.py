"""A registry with one image, as the distribution specification asks of one that is read only."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_TYPES = "application/vnd.docker.distribution.manifest.v2+json"
_LAYER, _CONFIG = (
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.container.image.v1+json",
)


class Registry:
    """What it serves: one image `tiny:1` for linux/amd64, with one file."""

    def __init__(self) -> None:
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            info = tarfile.TarInfo("hello")
            info.size = 5
            tar.addfile(info, io.BytesIO(b"world"))
        packed = gzip.compress(layer.getvalue(), mtime=0)
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "created": "1980-01-01T00:00:00Z",
                "config": {},
                "rootfs": {"type": "layers", "diff_ids": [_digest(layer.getvalue())]},
                "history": [{"created": "1980-01-01T00:00:00Z"}],
            }
        ).encode()
        self.id = _digest(config)
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": _TYPES,
                "config": _described(config, _CONFIG),
                "layers": [_described(packed, _LAYER)],
            }
        ).encode()
        self.digest = _digest(manifest)
        self.blobs = {_digest(data): data for data in (config, packed)}
        self.manifests = {"1": manifest, self.digest: manifest}


@contextmanager
def registry(address: str = "127.0.0.1") -> Iterator[tuple[Registry, str]]:
    """The registry, and its address with the port."""
    held = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            repository, _, rest = self.path.removeprefix("/v2/").partition("/")
            kind, _, name = rest.partition("/")
            served = {"manifests": held.manifests, "blobs": held.blobs} if repository == "tiny" else {}
            found = served.get(kind, {}).get(name, b"")
            self.send_response(200 if found or self.path == "/v2/" else 404)
            self.send_header("Content-Type", _TYPES if kind == "manifests" else "application/octet-stream")
            self.send_header("Content-Length", str(len(found)))
            if found:
                self.send_header("Docker-Content-Digest", _digest(found))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(found)

        do_HEAD = do_GET

        def log_message(self, *arguments: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer((address, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield held, f"{address}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _described(data: bytes, kind: str) -> dict[str, object]:
    return {"mediaType": kind, "size": len(data), "digest": _digest(data)}
