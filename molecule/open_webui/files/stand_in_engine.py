"""Stands in for an engine in this scenario: lists one model and gives one answer to whoever has the key."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "sk-example"
MODELS = {"object": "list", "data": [{"id": "demo", "object": "model", "created": 1, "owned_by": "molecule"}]}
ANSWER = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "demo",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "I stand in."}}
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4},
}


class Handler(BaseHTTPRequestHandler):
    """Answers every request."""

    def do_GET(self) -> None:
        """Answer with the models."""
        self._answer(MODELS)

    def do_POST(self) -> None:
        """Answer with the answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(ANSWER)

    def _answer(self, body: dict[str, object]) -> None:
        allowed = self.headers["Authorization"] == f"Bearer {KEY}"
        text = json.dumps(body if allowed else {}).encode()
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 20000), Handler).serve_forever()
