"""Checks the requests to the router of a divided service before smg reads them.

smg passes each field of a request to the replicas, also those that name where to fetch a KV cache
(kv_transfer_params of vLLM, bootstrap_host of SGLang): clients may not send these. smg runs in this
process, at a port of loopback.
"""

import asyncio
import contextlib
import hmac
import json
import os
import re
import socket
import sys
import threading
from typing import Any

MOST = 512 << 20  # bytes of a request, as smg has it
HEAD_S = 30  # for a connection's first head, as smg has it; smg's own time would be that of the body, too
_VALUES = 2 << 20  # of a body; all clients wait while it is read
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_REPLICA_FIELD = re.compile(r"(kv|ec)_transfer_params|bootstrap_\w+|disagg_\w+")
_FRAMING = (b"content-length", b"transfer-encoding", b"expect", b"upgrade")
_ALONE = (*_FRAMING, b"authorization")


class RefusedError(Exception):
    """The status and the reason of an answer to a request that smg does not get."""


def check_body(body: bytes) -> None:
    """Raise RefusedError for a body that is not JSON, or has a field that only the router sends."""

    def unique(pairs: Any) -> Any:
        if len(fields := dict(pairs)) < len(pairs):
            raise ValueError
        return fields

    if body.count(b",") > _VALUES:
        raise RefusedError("413 Content Too Large", "The body has too many values.")
    try:
        document = json.loads(body, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        raise RefusedError("400 Bad Request", "The body is not JSON, or has a name twice.") from None
    parts = [document, *document.values()] if isinstance(document, dict) else []
    for name in (name for part in parts if isinstance(part, dict) for name in part):
        if _REPLICA_FIELD.fullmatch(name):
            raise RefusedError("400 Bad Request", f"{name} is not for clients.")


async def body_of(fields: Any, reader: Any, writer: Any) -> Any:
    """The whole body, whatever its framing."""
    length, coding = fields.get(b"content-length", b"0"), fields.get(b"transfer-encoding", b"")
    if b"expect" in fields:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = bytearray()
    if not coding and length.isdigit() and int(length) <= MOST:
        return await reader.readexactly(int(length))
    while coding.lower() == b"chunked" and b"content-length" not in fields and len(body) <= MOST:
        size = re.fullmatch(rb"([0-9A-Fa-f]{1,8})(;[^\r\n]*)?\r\n", await reader.readuntil(b"\r\n"))
        if not size or int(size[1], 16) > MOST:
            break
        if not int(size[1], 16):
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return bytes(body)
        body += (await reader.readexactly(int(size[1], 16) + 2))[:-2]
    raise RefusedError("400 Bad Request", "The body's length is too large, or not clear.")


async def request(reader: Any, writer: Any, key: bytes, admin: bytes, head_s: "float | None") -> bytes:
    """The next request of a connection, whole and checked, as smg reads it."""
    line, *lines = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), head_s))[:-4].split(b"\r\n")
    read = [match for match in map(_FIELD.fullmatch, lines) if match]
    names = [match[1].lower() for match in read]
    clear = len(names) == len(lines) and max(map(names.count, _ALONE)) < 2
    if not clear or not re.fullmatch(rb"[A-Z]+ [!-~]+ HTTP/1\.[01]", line):
        raise RefusedError("400 Bad Request", "The request is malformed.")
    fields = {name: match[2] for name, match in zip(names, read)}  # noqa: B905 - of the image's Python
    body = b""
    if fields.keys() & {b"content-length", b"transfer-encoding"}:
        scheme, _, sent = fields.get(b"authorization", b"").partition(b" ")
        is_user, is_admin = hmac.compare_digest(sent, key), hmac.compare_digest(sent, admin)
        if scheme.lower() != b"bearer" or not (is_user or is_admin):
            raise RefusedError("401 Unauthorized", "This path needs the API key.")
        body = await body_of(fields, reader, writer)
        if body and is_user:  # the admin key registers replicas, with these fields
            check_body(body)
    header = [match[0] for match in read if match[1].lower() not in _FRAMING]
    header += [b"Content-Length: %d" % len(body)] if body else []
    return b"\r\n".join([line, *header, b"", body])


async def answers(reader: Any, writer: Any) -> None:
    """Copy what smg answers to the client."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def serve(listener: Any, port: int, key: bytes, admin: bytes) -> None:
    """Take connections until the process ends."""

    async def requests(reader: Any, writer: Any, inner: Any, data: bytes) -> None:
        while True:
            inner.write(data)
            await inner.drain()
            data = await request(reader, writer, key, admin, None)

    async def client(reader: Any, writer: Any) -> None:
        inner = writer
        with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError, asyncio.TimeoutError):
            try:
                first = await request(reader, writer, key, admin, HEAD_S)
                answered, inner = await asyncio.open_connection("127.0.0.1", port)
                tasks = [asyncio.ensure_future(requests(reader, writer, inner, first))]
                tasks.append(asyncio.ensure_future(answers(answered, writer)))
                done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in others:
                    task.cancel()
                done.pop().result()
            except RefusedError as refused:
                status, reason = refused.args
                text = json.dumps({"error": {"message": reason, "type": "invalid_request_error"}}).encode()
                head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
                writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
        for each in (inner, writer):
            each.close()

    server = await asyncio.start_server(client, sock=listener)
    await server.serve_forever()


def start() -> None:
    """Run smg with the process's arguments, behind the door."""
    words = os.environ.pop("ROUTER_ARGUMENTS").split()
    key, admin = words[1].encode(), words[3].rpartition(":")[2].encode()
    host, port = sys.argv.index("--host") + 1, sys.argv.index("--port") + 1
    listener = socket.create_server((sys.argv[host], int(sys.argv[port])), backlog=2048)
    with socket.create_server(("127.0.0.1", 0)) as free:
        inner = free.getsockname()[1]
    sys.argv[host], sys.argv[port] = "127.0.0.1", str(inner)
    sys.argv += words
    served = serve(listener, inner, key, admin)
    threading.Thread(target=asyncio.run, args=(served,), daemon=True).start()
    from smg.launch_router import main

    main()


if __name__ == "__main__":
    start()
