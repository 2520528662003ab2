"""Where the files of a transfer come from: a thread of the origin brings them while the others go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from headfirst.common.errors import NotReadyError
from headfirst.node.weights.files import contained, is_in_place
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.hashing import hash_file
from headfirst.node.weights.proof.manifest import HASH_THREADS, LAYERS
from headfirst.node.weights.store import Store
from headfirst.node.weights.transfer.board import Board, Overview

_READY_LIMIT_S = 15.0
"""How long to wait for the reports of members; longer, and files are read that nobody needs."""


class Origin(Protocol):
    """Brings the files of a checkpoint into the origin's folder."""

    in_place: bool
    """Whether the folder is somebody's own, so that nothing in it may be removed."""
    brought: int = 0
    """Bytes that are there, with those of unfinished files."""
    note: str = ""
    """What a person should read beside the progress; often nothing."""

    def bring(self, board: Board, store: Store, stopped: threading.Event) -> None:
        """Put what there is on the board, and then each file once it is whole in the folder and proven."""


class FolderOrigin(Origin):
    """A folder that is complete already, by its manifest; only what a member lacks is read."""

    def __init__(self, folder: Path) -> None:
        self.in_place = is_in_place(folder)

    def bring(self, board: Board, store: Store, stopped: threading.Event) -> None:
        """Prove the files that are lacking."""
        manifest = manifests.load(store.folder)
        if manifest is None:
            raise NotReadyError("there is no complete checkpoint to pass on", where=str(store.folder))
        if LAYERS in manifest.origin:
            raise NotReadyError(
                f"this copy has layers {manifest.origin[LAYERS]} only: it cannot be passed on as a whole",
                where=str(store.folder), hint="Name the model with --model.",
            )  # fmt: skip
        sizes = {name: record.size for name, record in manifest.files.items()}
        hashes = {name: record.xxh3 for name, record in manifest.files.items()}
        board.describe(Overview(time.time_ns(), manifest.origin, sizes, hashes))

        def prove(name: str) -> None:
            if stopped.is_set():
                return
            proof = store.proofs.get(name) or hash_file(contained(store.folder, name))
            if proof.xxh3 != hashes[name]:
                raise NotReadyError(
                    "this file differs from the manifest", where=str(store.folder / name),
                    hint="Remove it and run again: it is copied from another node.",
                )  # fmt: skip
            store.proofs.put(name, proof)
            board.announce({name: proof})

        with ThreadPoolExecutor(HASH_THREADS) as pool:
            for _proven in pool.map(prove, lacking(board, sizes, stopped)):
                pass


def lacking(board: Board, names: Iterable[str], stopped: threading.Event) -> list[str]:
    """The files that not all members report, once all have reported."""
    deadline = time.monotonic() + _READY_LIMIT_S
    while time.monotonic() < deadline and not stopped.is_set():
        if all(member.ready for member in board.members):
            break
        stopped.wait(0.05)
    return [name for name in names if not board.everybody_has(name)]


class Bringing:
    """The origin's thread; for a node that is not the origin (None) it is over at once. A context manager."""

    def __init__(self, origin: Origin | None, board: Board, store: Store) -> None:
        self.failure: Exception | None = None
        self.over = origin is None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(origin, board, store), name="origin")

    def __enter__(self) -> Bringing:
        if not self.over:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self, origin: Origin, board: Board, store: Store) -> None:
        try:
            origin.bring(board, store, self._stopped)
            self.over = True
        except Exception as error:  # handed on to the node's own thread, which raises it
            self.failure = error
