"""A local HTTP server that speaks enough of Hugging Face's and ModelScope's APIs for their real clients."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "c0ffee" * 6 + "c0ff"
MODEL = "team/model"
GATED = "team/gated"


class FakeHub(ThreadingHTTPServer):
    """One model, `team/model`, with `files`; `team/gated` refuses; everything else is not found.

    `cut` names files whose next download ends after half of its bytes. `sent` counts body bytes by file name
    and `tokens` collects the Authorization headers.
    """

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.cut: set[str] = set()
        self.wrong: set[str] = set()
        self.sent: dict[str, int] = {}
        self.tokens: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def running(files: dict[str, bytes]) -> Iterator[FakeHub]:
    """A hub that serves until the block ends."""
    hub = FakeHub(files)
    thread = threading.Thread(target=hub.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()

    def do_GET(self) -> None:
        if token := self.headers.get("Authorization"):
            self.server.tokens.add(token)
        url = urlsplit(self.path)
        path, query = unquote(url.path), {key: values[0] for key, values in parse_qs(url.query).items()}
        if path.startswith("/api/v1/"):
            return self._modelscope(path.removeprefix("/api/v1/"), query)
        return self._hugging_face(path)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _hugging_face(self, path: str) -> None:
        if f"/{GATED}" in path:
            return self._json({"error": "gated"}, 403, {"X-Error-Code": "GatedRepo"})
        if f"/{MODEL}" not in path:
            return self._json({"error": "not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        if asked := re.fullmatch(rf"/api/models/{MODEL}(/revision/(?P<revision>.+))?", path):
            if asked["revision"] not in (None, "main", COMMIT):
                return self._json({"error": "no revision"}, 404, {"X-Error-Code": "RevisionNotFound"})
            siblings = [self._sibling(name, data) for name, data in self.server.files.items()]
            return self._json({"id": MODEL, "modelId": MODEL, "sha": COMMIT, "siblings": siblings})
        if path.startswith(f"/api/models/{MODEL}/tree/"):
            return self._json([self._tree(name, data) for name, data in self.server.files.items()])
        if asked := re.fullmatch(rf"/{MODEL}/resolve/{COMMIT}/(?P<name>.+)", path):
            data = self.server.files[asked["name"]]
            tag = _sha256(data) if _is_lfs(asked["name"]) else _git_id(data)
            return self._file(asked["name"], {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT})
        return self._json({"error": f"fake hub does not know {path}"}, 404)

    def _sibling(self, name: str, data: bytes) -> dict[str, object]:
        entry: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": _git_id(data)}
        if _is_lfs(name):
            entry["lfs"] = {"sha256": _sha256(data), "size": len(data), "pointerSize": 130}
        return entry

    def _tree(self, name: str, data: bytes) -> dict[str, object]:
        entry: dict[str, object] = {"type": "file", "path": name, "size": len(data), "oid": _git_id(data)}
        if _is_lfs(name):
            entry["lfs"] = {"oid": _sha256(data), "size": len(data), "pointerSize": 130}
        return entry

    def _modelscope(self, path: str, query: dict[str, str]) -> None:
        if path.startswith(f"models/{GATED}"):
            return self._json({"Code": 403, "Message": "no access", "Success": False}, 403)
        if not path.startswith(f"models/{MODEL}") or query.get("Revision", "master") != "master":
            return self._json({"Code": 404, "Message": "not found", "Success": False}, 404)
        if path == f"models/{MODEL}/repo/files":
            files = [
                {"Name": name, "Path": name, "Size": len(data), "Sha256": _sha256(data), "Type": "blob"}
                for name, data in self.server.files.items()
            ]
            return self._json({"Code": 200, "Success": True, "Data": {"Files": files}})
        if path == f"models/{MODEL}/repo":
            return self._file(query["FilePath"], {})
        return self._json({"Code": 200, "Success": True, "Data": {}})

    def _json(self, document: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _file(self, name: str, headers: dict[str, str]) -> None:
        data = self.server.files[name]
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, end = (int(asked[1]), int(asked[2] or len(data) - 1)) if asked else (0, len(data) - 1)
        body = data[start : end + 1]
        if name in self.server.wrong:
            body = bytes(len(body))
        self.send_response(206 if asked else 200)
        for key, value in headers.items():
            self.send_header(key, value)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(data)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if name in self.server.cut:
            self.server.cut.discard(name)
            body = body[: len(body) // 2]
            self.close_connection = True
        self.wfile.write(body)
        self.server.sent[name] = self.server.sent.get(name, 0) + len(body)


def _is_lfs(name: str) -> bool:
    return name.endswith(".safetensors")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _git_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
