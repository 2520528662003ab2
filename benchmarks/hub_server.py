"""A folder, served as Hugging Face's hub serves a model: what its client and ours ask, and not more.

Usage: python benchmarks/hub_server.py FOLDER MODEL ADDRESS_OF_LARGE_FILES PORT

The bodies go out by sendfile, so that the server costs next to nothing beside what it is measured with.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" * 6 + "c0ff"


@dataclass(frozen=True)
class Hosted:
    """A file: bytes, and how the hub names its content; `sha256` only for large ones, kept by LFS."""

    path: Path
    size: int
    git_id: str
    sha256: str | None

    @classmethod
    def of(cls, path: Path) -> Hosted:
        """Read it once."""
        data = path.read_bytes()
        git_id = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        large = path.suffix == ".safetensors"
        return cls(path, len(data), git_id, hashlib.sha256(data).hexdigest() if large else None)

    @property
    def lfs(self) -> dict[str, object]:
        """What a listing says of a large file."""
        return {"lfs": {"sha256": self.sha256, "oid": self.sha256, "size": self.size, "pointerSize": 130}}


class Hub(ThreadingHTTPServer):
    """One model; there is nothing else."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, folder: Path, model: str, large_address: str, port: int) -> None:
        self.files = {path.name: Hosted.of(path) for path in sorted(folder.iterdir()) if path.is_file()}
        self.model = model
        self.large_at = f"{large_address}:{port}"
        super().__init__(("", port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path, hub = unquote(urlsplit(self.path).path), self.server
        resolved = f"/{hub.model}/resolve/{COMMIT}/"
        if path.startswith("/large/"):
            return self._file(hub.files[path.removeprefix("/large/")])
        if path.startswith(resolved):
            return self._resolve(hub.files[path.removeprefix(resolved)])
        if path.startswith(f"/api/models/{hub.model}/tree/"):
            return self._json([_entry("path", "oid", file) for file in hub.files.values()])
        if path.startswith(f"/api/models/{hub.model}"):
            siblings = [_entry("rfilename", "blobId", file) for file in hub.files.values()]
            return self._json({"id": hub.model, "modelId": hub.model, "sha": COMMIT, "siblings": siblings})
        return self._json({"error": "not found"}, 404)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads along."""

    def _resolve(self, file: Hosted) -> None:
        """A large file lies on another host, as behind the hub's CDN."""
        known = {"X-Repo-Commit": COMMIT, "ETag": f'"{file.git_id}"'}
        if file.sha256 is None:
            return self._file(file, known)
        linked = {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size)}
        location = f"http://{self.server.large_at}/large/{file.path.name}"
        return self._json({}, 302, {**known, **linked, "Location": location})

    def _json(self, document: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(document).encode()
        self._head(status, len(body), {"Content-Type": "application/json", **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _file(self, file: Hosted, headers: dict[str, str] | None = None) -> None:
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        part = {"Content-Range": f"bytes {start}-{file.size - 1}/{file.size}"} if start else {}
        self._head(206 if start else 200, file.size - start, {**(headers or {}), **part})
        if self.command != "HEAD":
            with file.path.open("rb") as content:
                self.connection.sendfile(content, start)

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(length), "Accept-Ranges": "bytes"}.items():
            self.send_header(name, value)
        self.end_headers()


def _entry(name: str, git_id: str, file: Hosted) -> dict[str, object]:
    entry: dict[str, object] = {
        "type": "file",
        name: file.path.name,
        git_id: file.git_id,
        "size": file.size,
    }
    return entry | (file.lfs if file.sha256 else {})


if __name__ == "__main__":
    Hub(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])).serve_forever()
