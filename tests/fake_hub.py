"""A local HTTP server that speaks enough of Hugging Face's and ModelScope's APIs for their real clients."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "c0ffee" * 6 + "c0ff"
MODEL = "team/model"
GATED = "team/gated"
SIGNATURE = "X-Amz-Signature=signed-for-you"


class FakeHub(ThreadingHTTPServer):
    """One model, `team/model`, with `files`; `team/gated` shows them and refuses them; there is nothing else.

    How often something still fails, by file name (or LISTING): `cut` ends a download after half of its bytes,
    `wrong` sends zeros, `busy` answers 429. `rate` is bytes per second and connection; 0 is no limit.
    `listed` are entries (`name`, `size`, `sha256`) of the listing for which there is no file; `listing_extra`
    goes into the answer beside the entries; with `gzip` JSON is compressed, whatever was asked. `sent` counts
    body bytes, `order` has the downloads, and `tokens` the Authorization headers by path.
    `silent` has the moments at which it falls silent and keeps the connection, by file name (or LISTING), in
    turn: before the answer ("answer"), after its headers ("headers"), or amid its body ("body").
    Large files come from another host name, as from a hub's CDN. `xet` has the Xet hash of files that lie
    at `xet_url`, by name. `commit` is what the branch names, `delay` the seconds before each answer, and
    `requests` has the path of each request.
    """

    LISTING = "the listing"
    daemon_threads = True

    def __init__(self, files: dict[str, bytes], address: str = "127.0.0.1") -> None:
        super().__init__((address, 0), _Handler)
        self.files = files
        self.cut: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.busy: Counter[str] = Counter()
        self.silent: dict[str, list[str]] = {}
        self.over = threading.Event()
        self.rate = 0.0
        self.sent: Counter[str] = Counter()
        self.order: list[str] = []
        self.tokens: dict[str, str] = {}
        self.listed: list[dict[str, object]] = []
        self.listing_extra: Mapping[str, object] = {}
        self.gzip = False
        self.xet: Mapping[str, str] = {}
        self.xet_url = ""
        self.commit = COMMIT
        self.delay = 0.0
        self.requests: list[str] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]}:{self.server_address[1]}"

    @property
    def cdn(self) -> str:
        address = (
            self.url
            if self.server_address[0] != "127.0.0.1"
            else f"http://localhost:{self.server_address[1]}"
        )
        return f"{address}/cdn"

    def fails(self, failures: Counter[str], name: str) -> bool:
        """Whether this failure is due now; it is used up by asking."""
        with self._lock:
            due = failures[name] > 0
            failures[name] -= due
            return due

    def falls_silent(self, name: str, moment: str) -> bool:
        """Whether it is due now; used up by asking."""
        with self._lock:
            due = self.silent.get(name, [])[:1] == [moment]
            del self.silent.get(name, [])[: int(due)]
            return due

    def count(self, name: str, count: int) -> None:
        with self._lock:
            self.sent[name] += count


@contextmanager
def running(files: dict[str, bytes], address: str = "127.0.0.1") -> Iterator[FakeHub]:
    """A hub that serves until the block ends."""
    hub = FakeHub(files, address)
    thread = threading.Thread(target=hub.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.over.set()
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
        self.server.requests.append(self.path)
        time.sleep(self.server.delay)
        url = urlsplit(self.path)
        path, query = unquote(url.path), {key: values[0] for key, values in parse_qs(url.query).items()}
        if token := self.headers.get("Authorization"):
            self.server.tokens[path] = token
        if path.startswith("/cdn/"):
            return self._file(path.removeprefix("/cdn/"), {})
        if path.startswith("/api/v1/"):
            return self._modelscope(path.removeprefix("/api/v1/"), query)
        return self._hugging_face(path)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _hugging_face(self, path: str) -> None:
        asked = re.match(rf"(/api/models)?/(?P<model>{MODEL}|{GATED})(?P<rest>/.*)?$", path)
        if not asked:
            return self._json({"error": "not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        rest = asked["rest"] or ""
        if asked[1] and re.fullmatch(r"(/revision/.+)?", rest):
            if self.server.fails(self.server.busy, FakeHub.LISTING):
                return self._busy()
            if rest.removeprefix("/revision/") not in ("", "main", self.server.commit):
                return self._json({"error": "no revision"}, 404, {"X-Error-Code": "RevisionNotFound"})
            siblings = [self._sibling(name, data) for name, data in self.server.files.items()]
            siblings += [
                {
                    "rfilename": entry["name"],
                    "size": entry["size"],
                    "lfs": {"sha256": entry["sha256"], "size": 1, "pointerSize": 130},
                }
                for entry in self.server.listed
            ]
            answer = {"id": MODEL, "modelId": MODEL, "sha": self.server.commit, "siblings": siblings}
            return self._json({**answer, **self.server.listing_extra})
        if asked["model"] == GATED:
            return self._json({"error": "gated"}, 403, {"X-Error-Code": "GatedRepo"})
        if rest.startswith("/xet-read-token/"):
            return self._json(
                {"accessToken": "short-lived", "exp": int(time.time()) + 900, "casUrl": self.server.xet_url}
            )
        return self._resolve(rest.removeprefix(f"/resolve/{self.server.commit}/"))

    def _resolve(self, name: str) -> None:
        data = self.server.files[name]
        if not _is_lfs(name):
            return self._file(name, {"ETag": f'"{_git_id(data)}"', "X-Repo-Commit": self.server.commit})
        headers = {
            "Location": f"{self.server.cdn}/{name}?{SIGNATURE}",
            "X-Linked-Etag": f'"{_sha256(data)}"',
            "X-Linked-Size": str(len(data)),
            "X-Repo-Commit": self.server.commit,
        }
        if name in self.server.xet:
            headers["X-Xet-Hash"] = self.server.xet[name]
            headers["X-Xet-Refresh-Route"] = (
                f"{self.server.url}/api/models/{MODEL}/xet-read-token/{self.server.commit}"
            )
        return self._json({}, 302, headers)

    def _sibling(self, name: str, data: bytes) -> dict[str, object]:
        entry: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": _git_id(data)}
        if _is_lfs(name):
            entry["lfs"] = {"sha256": _sha256(data), "size": len(data), "pointerSize": 130}
        return entry

    def _modelscope(self, path: str, query: dict[str, str]) -> None:
        known = path.startswith((f"models/{MODEL}", f"models/{GATED}"))
        if not known or query.get("Revision", "master") != "master":
            return self._json({"Code": 404, "Message": "not found", "Success": False}, 404)
        if path.endswith("/repo/files"):
            if self.server.fails(self.server.busy, FakeHub.LISTING):
                return self._busy()
            files = [
                {"Name": name, "Path": name, "Size": len(data), "Sha256": _sha256(data), "Type": "blob"}
                for name, data in self.server.files.items()
            ]
            files += [
                {"Path": entry["name"], "Size": entry["size"], "Sha256": entry["sha256"], "Type": "blob"}
                for entry in self.server.listed
            ]
            extra = self.server.listing_extra
            return self._json({"Code": 200, "Success": True, "Data": {"Files": files}, **extra})
        if path.startswith(f"models/{GATED}"):
            return self._json({"Code": 403, "Message": "no access", "Success": False}, 403)
        if path == f"models/{MODEL}/repo":
            name = query["FilePath"]
            if _is_lfs(name):
                return self._json({}, 302, {"Location": f"{self.server.cdn}/{name}?{SIGNATURE}"})
            return self._file(name, {})
        return self._json({"Code": 200, "Success": True, "Data": {}})

    def _is_silent(self, name: str, moment: str) -> bool:
        """Whether nothing more is sent; returns when the test is over."""
        if self.command == "HEAD" or not self.server.falls_silent(name, moment):
            return False
        self.server.over.wait()
        self.close_connection = True
        return True

    def _busy(self) -> None:
        self._json({"error": "slow down"}, 429, {"Retry-After": "1"})

    def _json(self, document: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(document).encode()
        listing = FakeHub.LISTING if {"siblings", "Data"} & set(document) else ""  # type: ignore[call-overload]
        if self._is_silent(listing, "answer"):
            return
        headers = dict(headers or {})
        if self.server.gzip:
            body = gzip.compress(body)
            headers["Content-Encoding"] = "gzip"
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD" or self._is_silent(listing, "headers"):
            return
        self.wfile.write(body[: len(body) // 2])
        if not self._is_silent(listing, "body"):
            self.wfile.write(body[len(body) // 2 :])

    def _file(self, name: str, headers: dict[str, str]) -> None:
        if self.command != "HEAD" and self.server.fails(self.server.busy, name):
            self._busy()
            return
        if self._is_silent(name, "answer"):
            return
        data = self.server.files[name]
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, end = (int(asked[1]), int(asked[2] or len(data) - 1)) if asked else (0, len(data) - 1)
        body = data[start : end + 1]
        self.send_response(206 if asked else 200)
        for key, value in headers.items():
            self.send_header(key, value)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(data)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD" or self._is_silent(name, "headers"):
            return
        self.server.order.append(name)
        if self.server.fails(self.server.wrong, name):
            body = bytes(len(body))
        if self.server.fails(self.server.cut, name):
            body = body[: len(body) // 2]
            self.close_connection = True
        half = len(body) // 2
        self._send(name, body[:half])
        if not self._is_silent(name, "body"):
            self._send(name, body[half:])

    def _send(self, name: str, body: bytes) -> None:
        block = 256 * 1024
        for start in range(0, len(body), block):
            try:
                self.wfile.write(body[start : start + block])
            except ConnectionError:  # the client was killed
                self.close_connection = True
                return
            self.server.count(name, len(body[start : start + block]))
            if self.server.rate:
                time.sleep(block / self.server.rate)


def _is_lfs(name: str) -> bool:
    return name.endswith(".safetensors")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _git_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class FakeXet(ThreadingHTTPServer):
    """A Xet store that lists each file as one range of one object, and falls silent amid sending it.

    `moment`: before the "list" of ranges, before the "answer" with the bytes, or amid its "body"; or "drips".
    """

    daemon_threads = True

    def __init__(self, moment: str) -> None:
        super().__init__(("127.0.0.1", 0), _XetHandler)
        self.moment = moment
        self.over = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()


class _XetHandler(BaseHTTPRequestHandler):
    server: FakeXet
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path.startswith("/v2/"):  # then the client asks for version 1
            self.send_error(404)
        elif self.path.startswith("/v1/") and self.server.moment != "list":
            hash, last = self.path.rpartition("/")[2], int(self.headers["Range"].rpartition("-")[2])
            chunks, span = {"start": 0, "end": 80}, {"start": 0, "end": last}
            fetch = {"range": chunks, "url": f"{self.server.url}/object", "url_range": span}
            terms = [{"hash": hash, "unpacked_length": last + 1, "range": chunks}]
            body = json.dumps({"offset_into_first_range": 0, "terms": terms, "fetch_info": {hash: [fetch]}})
            self._begin(200, len(body))
            self.wfile.write(body.encode())
        else:
            if self.server.moment == "body":
                self._begin(206, 1_000_000)
                self.wfile.write(bytes(500_000))
            elif self.server.moment == "drips":
                self._begin(206, 1_000_000)
            while not self.server.over.wait(0.2):
                if self.server.moment == "drips":
                    self.wfile.write(b"\0")
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _begin(self, status: int, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()
