"""The node that serves a checkpoint, seen from a node that pulls it: one file at a time, resumed, proven."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar
from urllib.parse import quote

import httpx
import xxhash

from headfirst.errors import NotReadyError
from headfirst.weights.files import CHUNK
from headfirst.weights.hash_cache import FileRecord
from headfirst.weights.manifest import Manifest, parse

_Result = TypeVar("_Result")
_ATTEMPTS = 3
_LONGEST_WAIT_S = 10.0
_REFUSALS = {
    401: "it refuses the token",
    403: "it does not know this host's address as a peer",
    404: "it serves no such file",
}


class Peer:
    """A serving node. A lost connection is taken up again until nothing came for `patience_s` seconds."""

    def __init__(self, url: str, token: str, patience_s: float) -> None:
        self._url = url
        self._patience_s = patience_s
        self._heard = time.monotonic()
        self.stop = threading.Event()
        # trust_env off: the data network is not reached through the proxy for the internet.
        self._client = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False
        )

    def manifest(self) -> Manifest:
        """What it serves."""

        def get() -> bytes:
            response = self._client.get("/manifest")
            self._accept(response, 200)
            return response.content

        return parse(self._patiently(get), self._url)

    def pull(self, name: str, record: FileRecord, part: Path, seen: Callable[[int], object]) -> None:
        """Bring `part` to the whole file `name`, on disk; what `part` already holds is not sent again.

        Raises NotReadyError where the bytes stay wrong, or the node stays silent.
        """
        part.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(_ATTEMPTS):
            with part.open("a+b") as file:
                if self._complete(name, record, file, seen):
                    return
            part.unlink()
            seen(-record.size)
        raise NotReadyError(f"{name} arrives with other bytes than the manifest says", where=self._url)

    def _complete(self, name: str, record: FileRecord, file: BinaryIO, seen: Callable[[int], object]) -> bool:
        digest = xxhash.xxh3_128()
        file.seek(0)
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            seen(len(chunk))

        def append() -> None:
            headers = {"Range": f"bytes={file.tell()}-"}
            with self._client.stream("GET", f"/files/{quote(name)}", headers=headers) as response:
                self._accept(response, 206)
                for data in response.iter_raw():
                    file.write(data)
                    digest.update(data)
                    seen(len(data))
                    self._heard = time.monotonic()
                    if self.stop.is_set():
                        return

        while file.tell() < record.size and not self.stop.is_set():
            self._patiently(append)
        file.flush()
        os.fsync(file.fileno())
        return self.stop.is_set() or digest.hexdigest() == record.xxh3

    def _patiently(self, action: Callable[[], _Result]) -> _Result:
        self._heard = time.monotonic()
        wait = 0.5
        while True:
            try:
                return action()
            except httpx.TransportError as error:
                if time.monotonic() - self._heard > self._patience_s or self.stop.is_set():
                    raise NotReadyError(
                        f"the node that serves the weights does not answer: {error or type(error).__name__}",
                        where=self._url,
                        hint="Check that this host reaches the head at weights_port, then run again.",
                    ) from error
            self.stop.wait(wait)
            wait = min(2 * wait, _LONGEST_WAIT_S)

    def _accept(self, response: httpx.Response, status: int) -> None:
        if response.status_code != status:
            why = _REFUSALS.get(response.status_code, f"it answers with status {response.status_code}")
            raise NotReadyError(f"the node that serves the weights sends nothing: {why}", where=self._url)
