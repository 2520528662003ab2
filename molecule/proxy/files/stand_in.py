"""Stands in for engines (ports 20000 and 20002) and a chat page (port 20080): answers with what it was sent.

A path that ends in /stream gets an event every 0.2 s, for 8 s.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Answers every request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with the request, or with events."""
        if self.path.endswith("/stream"):
            self._stream()
            return
        sent = {"port": self.server.server_port, "path": self.path, "headers": dict(self.headers)}
        text = json.dumps(sent).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(40):
            event = f"data: {number}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.flush()
            time.sleep(0.2)
        self.wfile.write(b"0\r\n\r\n")


if __name__ == "__main__":
    for port in (20080, 20000, 20002):
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=server.serve_forever).start()
