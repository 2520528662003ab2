"""Files from Xet, the storage behind Hugging Face: many connections for one file, its bytes in order."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import closing, suppress
from queue import Empty, Queue

from hf_xet import XetDownloadStream, XetDownloadStreamGroup, XetFileInfo, XetSession
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # exported at run time

from headfirst.node.weights.fetch.partial_file import PartialFile

# Behind some firewalls its servers cannot be reached, or fall silent: the usual many minutes would be lost.
_SETTINGS = {"CONNECT_TIMEOUT": "10s", "READ_TIMEOUT": "10s", "RETRY_MAX_ATTEMPTS": "2"}
_SILENCE_LIMIT_S = 45.0
"""For the next bytes of a file, whatever the library waits for."""


class XetStore:
    """Downloads that share connections and one access token. Safe to use from several threads."""

    def __init__(self) -> None:
        for name, value in _SETTINGS.items():
            os.environ.setdefault(f"HF_XET_CLIENT_{name}", value)
        self._session = XetSession()
        self._groups: dict[str, XetDownloadStreamGroup] = {}
        self._lock = threading.Lock()

    def pull(self, file_hash: str, token_url: str, part: PartialFile) -> None:
        """Write the file's bytes from `part.size` on into `part`; the hub gives access at `token_url`.

        Raises EOFError, TimeoutError, or whatever the Rust library raises, where the store cannot be used.
        """
        info = XetFileInfo(file_hash, part.expected_size)
        stream = self._group(token_url).download_stream(info, start=part.size)
        with closing(_chunks(stream)) as chunks:
            for chunk in chunks:
                part.write(chunk)
        if not part.whole:  # the stream of a file that the store does not have just ends
            raise EOFError(f"the store ended after {part.size} of {part.expected_size} bytes")

    def _group(self, token_url: str) -> XetDownloadStreamGroup:
        with self._lock:
            if token_url not in self._groups:
                self._groups[token_url] = self._session.new_download_stream_group(
                    token_refresh_url=token_url, token_refresh_headers=build_hf_headers()
                )
            return self._groups[token_url]


def _chunks(stream: XetDownloadStream) -> Generator[bytes]:
    """What the stream brings. A wait inside the library cannot be ended, so a thread of its own has it."""
    chunks: Queue[bytes | Exception | None] = Queue(1)
    over = threading.Event()

    def read() -> None:
        try:
            for chunk in stream:
                chunks.put(chunk)
                if over.is_set():
                    return
            chunks.put(None)
        except Exception as error:  # raised again where it is waited for
            chunks.put(error)
        finally:
            stream.cancel()

    threading.Thread(target=read, daemon=True).start()
    try:
        while (chunk := chunks.get(timeout=_SILENCE_LIMIT_S)) is not None:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk
    except Empty:
        raise TimeoutError(f"nothing came for {_SILENCE_LIMIT_S:.0f} s") from None
    finally:
        over.set()
        with suppress(Empty):
            chunks.get_nowait()
