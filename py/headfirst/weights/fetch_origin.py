"""The origin that fetches the model from a hub or a folder; what all members have is not fetched again."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from headfirst.weights.board import Board, Overview
from headfirst.weights.checkpoint_check import check_checkpoint
from headfirst.weights.fetch import Fetching, Request
from headfirst.weights.origin import lacking
from headfirst.weights.space import require_origin_space
from headfirst.weights.store import Store


class FetchOrigin:
    """`target` is the folder of the BF16 copy, None where the model is served as it is."""

    def __init__(self, request: Request, folder: Path, target: Path | None, *, keep_source: bool) -> None:
        self.in_place = request.is_for(folder)
        self.brought = 0
        self._request = request
        self._target = target
        self._keep_source = keep_source
        self._lock = threading.Lock()

    def bring(self, board: Board, store: Store, stopped: threading.Event) -> None:
        """Fetch file by file, several at a time."""
        fetching = Fetching(self._request, store.folder, stopped)
        sizes = {file.name: file.size for file in fetching.listing.files}
        known = {name: record.xxh3 for name, record in fetching.known.items()}
        board.describe(Overview(time.time_ns(), fetching.made_from, sizes, known))
        spare = known.keys() - set(lacking(board, known, stopped)) if known else frozenset()
        missing = fetching.missing_bytes(spare)
        require_origin_space(sizes, missing, store.folder, self._target, self._keep_source)
        fetching.bring(
            store.proofs,
            without=spare,
            arrived=lambda name, proof: board.announce({name: proof}),
            seen=self._see,
        )
        if self._target is None:
            check_checkpoint(store.folder)

    def _see(self, count: int) -> None:
        with self._lock:
            self.brought += count
