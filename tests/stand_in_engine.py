"""Stands in for an engine of several ranks: they meet, compute together, and all end when one does.

Runs with the Python of the node, in an image that has nothing of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def arguments() -> argparse.Namespace:
    """The command line; an unknown flag ends with argparse's message, as in an engine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--head", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--says", required=True)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--gpu", choices=["free", "full"], default="free")
    parser.add_argument("--dies", type=int, help="this rank dies while it loads")
    return parser.parse_args()


def main() -> None:
    """Load, meet, serve."""
    given = arguments()
    if given.gpu == "full" and given.rank == 1:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    peers = meet(given)
    print("Load weight begin", flush=True)
    if given.dies == given.rank:
        time.sleep(2)
        os.kill(os.getpid(), 9)
    wait_for_all(given, peers)
    beats = dict.fromkeys(peers, time.monotonic())
    if given.rank == 0:
        threading.Thread(target=serve, args=[given, beats], daemon=True).start()
    watch(given, beats)


def meet(given: argparse.Namespace) -> list[socket.socket]:
    """Connections to the other ranks: rank 0 has one to each, the others one to rank 0."""
    if given.rank:
        while True:
            try:
                return [socket.create_connection((given.head, given.port + 1), timeout=60)]
            except OSError:
                time.sleep(0.2)
    listener = socket.create_server((given.head, given.port + 1), reuse_port=True)
    return [listener.accept()[0] for _ in range(given.ranks - 1)]


def wait_for_all(given: argparse.Namespace, peers: list[socket.socket]) -> None:
    """Rank 0 serves after every rank has loaded, as an engine does."""
    if given.rank:
        peers[0].sendall(b"L")
        return
    for peer in peers:
        if not peer.recv(1):
            sys.exit("RuntimeError: Connection closed by peer")


def watch(given: argparse.Namespace, beats: dict[socket.socket, float]) -> None:
    """Wait until a peer is gone; no rank serves without the others."""
    while True:
        for peer in beats:
            peer.settimeout(0.5)
            try:
                peer.sendall(b"B")
                if not peer.recv(64):
                    sys.exit("RuntimeError: Connection closed by peer")
                beats[peer] = time.monotonic()
            except TimeoutError:
                continue
        time.sleep(0.1)


def compute(beats: dict[socket.socket, float]) -> None:
    """Return when all ranks have done their part, which one that is stopped never does."""
    while any(time.monotonic() - beat > 2 for beat in beats.values()):
        time.sleep(0.1)


def serve(given: argparse.Namespace, beats: dict[socket.socket, float]) -> None:
    """Answer whoever has the key of the configuration."""
    key = next(
        line.split(":", 1)[1].strip()
        for line in given.config.read_text().splitlines()
        if line.startswith("api-key:")
    )

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            compute(beats)
            message = {"role": "assistant", "content": given.says}
            self.answer({"choices": [{"message": message}], "usage": {"completion_tokens": 1}})

        def answer(self, body: dict[str, object]) -> None:
            allowed = self.headers["Authorization"] == f"Bearer {key}"
            text = json.dumps(body).encode()
            self.send_response(200 if allowed else 401)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    ThreadingHTTPServer((given.head, given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
