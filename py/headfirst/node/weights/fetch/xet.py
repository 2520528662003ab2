"""Files from Xet, the storage behind Hugging Face: many connections for one file, its bytes in order."""

from __future__ import annotations

import threading

from hf_xet import XetConfig, XetDownloadStreamGroup, XetFileInfo, XetSession
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # exported at run time

from headfirst.node.weights.fetch.partial_file import PartialFile

# Behind some firewalls its servers cannot be reached; the usual six minutes of trying would then be lost.
_SETTINGS = {"client.connect_timeout": "10s", "client.retry_max_attempts": 2}


class XetStore:
    """Downloads that share connections and one access token. Safe to use from several threads."""

    def __init__(self) -> None:
        self._session = XetSession(XetConfig().with_config(_SETTINGS))
        self._groups: dict[str, XetDownloadStreamGroup] = {}
        self._lock = threading.Lock()

    def pull(self, file_hash: str, token_url: str, part: PartialFile) -> None:
        """Write the file's bytes from `part.size` on into `part`; the hub gives access at `token_url`.

        Raises EOFError, or whatever the Rust library raises, where the store cannot be used.
        """
        info = XetFileInfo(file_hash, part.expected_size)
        stream = self._group(token_url).download_stream(info, start=part.size)
        try:
            for chunk in stream:
                part.write(chunk)
        finally:
            stream.cancel()
        if not part.whole:  # the stream of a file that the store does not have just ends
            raise EOFError(f"the store ended after {part.size} of {part.expected_size} bytes")

    def _group(self, token_url: str) -> XetDownloadStreamGroup:
        with self._lock:
            if token_url not in self._groups:
                self._groups[token_url] = self._session.new_download_stream_group(
                    token_refresh_url=token_url, token_refresh_headers=build_hf_headers()
                )
            return self._groups[token_url]
