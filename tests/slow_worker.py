"""A replica behind a router: answers OpenAI's chat requests with its port, one word at a time.

Usage: KEY=… slow_worker.py PORT [ADDRESS]. `max_tokens` is the number of words, `temperature` the seconds
before each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "slow"


class Server(ThreadingHTTPServer):
    """Many clients at once."""

    request_queue_size = 128
    daemon_threads = True


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    key = ""

    def log_message(self, *_: Any) -> None:
        """Keep the tests' output clean."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send(200, {})
        elif self._may() and self.path == "/v1/models":
            self._send(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        elif self._may():
            self._send(404, {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._may():
            return
        words, pause = asked["max_tokens"], asked["temperature"]
        name = str(self.server.server_address[1])
        if not asked.get("stream"):
            time.sleep(words * pause)
            message = {"role": "assistant", "content": name}
            self._send(200, self._answer({"message": message, "finish_reason": "stop"}))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(words):
            time.sleep(pause)
            self._chunk(json.dumps(self._answer({"delta": {"content": name}, "finish_reason": None})))
        self._chunk("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _may(self) -> bool:
        if self.headers["Authorization"] == f"Bearer {self.key}":
            return True
        self._send(401, {})
        return False

    def _answer(self, choice: dict[str, Any]) -> dict[str, Any]:
        return {"id": "1", "object": "chat.completion", "created": 1, "model": MODEL} | {
            "choices": [{"index": 0, **choice}]
        }

    def _chunk(self, text: str) -> None:
        data = f"data: {text}\n\n".encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def _send(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    Handler.key = os.environ["KEY"]
    address = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
    Server((address, int(sys.argv[1])), Handler).serve_forever()
