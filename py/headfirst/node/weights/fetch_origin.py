"""The members that fetch a model from its source: the head, and those that share the work with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from headfirst.common.errors import HeadfirstError
from headfirst.node.weights.fetch.fetch_run import MOST_AT_ONCE, FetchRun
from headfirst.node.weights.fetch.fetching import Fetching, FetchRequest
from headfirst.node.weights.files import SHARDS_IN_FLIGHT, require_transfer_space
from headfirst.node.weights.layers import FileNeeds
from headfirst.node.weights.origin import Origin, lacking
from headfirst.node.weights.proof.hash_cache import FileRecord
from headfirst.node.weights.proof.hashing import FileHash
from headfirst.node.weights.sharing import Sharing
from headfirst.node.weights.store import Store
from headfirst.node.weights.transfer.board import Board, Overview

_TICK_S = 0.1


class FetchOrigin(Origin):
    """The head: it lists what there is, and who fetches what.

    `target` is the folder of the BF16 copy, None where the model is served as it is. `mode` is one of
    sharing.MODES.
    """

    def __init__(
        self,
        request: FetchRequest,
        folder: Path,
        target: Path | None,
        *,
        keep_source: bool,
        needs: FileNeeds,
        mode: str = "head",
    ) -> None:
        self.in_place = request.is_for(folder)
        self._request = request
        self._target = target
        self._keep_source = keep_source
        self._mode = mode
        self._needs = needs
        self._lock = threading.Lock()

    def bring(self, board: Board, store: Store, stopped: threading.Event) -> None:
        """Fetch file by file, several at a time, or have other members fetch."""
        fetching = Fetching(self._request, store.folder, stopped)
        sizes = fetching.sizes
        hashes = {name: record.xxh3 for name, record in fetching.fetched.records.items()}
        board.describe(Overview(time.time_ns(), fetching.made_from, sizes, hashes, fetching.sha256))
        spare: set[str] = set()

        def seen(count: int) -> None:
            with self._lock:
                self.brought += count
                self.note = fetching.source.note
                board.report(notify=False, fetched=self.brought)

        run = FetchRun(
            fetching,
            store.proofs,
            without=spare,
            arrived=lambda name, proof: board.announce({name: proof}),
            seen=seen,
        )
        if self._needs.divided:
            run.bring_first()
            self._needs.learn(store.folder, sizes, sizes.keys())
        if hashes:
            absent = lacking(board, hashes, stopped)
            spare |= hashes.keys() - set(absent)
            if self._mode == "head":
                spare |= self._borrow(board, store, fetching.fetched.records, absent)
        self._require_space(fetching, spare)
        if len(board.members) == 1 or self._mode == "head":
            run.bring_all()
        else:
            run.bring_first()
            self._share(run, board, [name for name in run.others() if name not in spare])

    def _require_space(self, fetching: Fetching, spare: AbstractSet[str]) -> None:
        """NotReadyError where the disk is too small; what only others need is here for a moment."""
        sizes, needed = fetching.sizes, self._needs.needed(fetching.sizes)
        missing = fetching.missing_bytes(spare | (sizes.keys() - needed.keys()))
        if len(needed) < len(sizes):
            missing += SHARDS_IN_FLIGHT * max(sizes.values())
        folder, target = fetching.target, self._target
        require_transfer_space("fetch", needed, missing, folder, target, self._keep_source)

    def _borrow(
        self, board: Board, store: Store, records: Mapping[str, FileRecord], names: Iterable[str]
    ) -> set[str]:
        """Have members pass on what they hold of `names` and this one does not; returns which of them.

        This one fetched them once, and remembers how they are proven.
        """
        if self._target and not self._keep_source:
            return set()
        borrowed: dict[str, FileHash] = {}
        shares: list[set[str]] = [set() for _member in board.members]
        for name in names:
            proof = store.proofs.remembered(name)
            holder = next((index for index, member in enumerate(board.members) if name in member.have), 0)
            if holder and proof and proof.record == records[name] and not (store.folder / name).exists():
                shares[holder].add(name)
                borrowed[name] = proof
        if borrowed:
            with board.changed:
                board.give(shares)
                board.announce(borrowed)
        return set(borrowed)

    def _share(self, run: FetchRun, board: Board, files: list[str]) -> None:
        """Give the files to the members, and fetch those that are this one's.

        What the source lists no sha256 of, only this one fetches: nobody could prove it of another member.
        Once a member was sent what is wrong, this one fetches the rest: nobody may ask those that have it.
        """
        fetching, stopped = run.fetching, run.fetching.stopped
        alone = [name for name in files if name not in fetching.sha256]
        shared = [name for name in files if name in fetching.sha256]
        sharing = Sharing(shared, len(board.members), self._mode, self._needs.members)
        sharing.given[0].update(alone)
        board.give(sharing.given)
        needed = set(filter(self._needs.is_needed, files))
        noted: set[str] = set()
        with _Given(run, board) as fetches:
            while not stopped.is_set() and not (noted >= set(files) and board.members[0].have >= needed):
                proofs = board.proofs()
                for name, proof in proofs.items():
                    # A file that this one does not receive is proven by those that need it.
                    elsewhere = not self._needs.is_needed(name) and board.everybody_has(name)
                    if name not in noted and (board.is_signed(name, proof) or elsewhere):
                        noted.add(name)
                        if board.is_given_away(name):
                            fetching.fetched.put(name, proof.record)
                if any(member.doubts for member in board.members):
                    news = sharing.fall_back(noted)
                else:
                    now = time.monotonic()
                    news = sharing.step(board.members, board.silent_for, proofs.keys(), noted, now)
                self.note = sharing.reason or fetching.source.note
                if news:
                    board.give(sharing.given)
                fetches.step()
                board.wait(board.version, _TICK_S)


class FetchHelper:
    """Another member, which fetches what the head gives it, where it reaches the source as the head does.

    A context manager: a thread of its own does the work. That it fails is no failure of the transfer: the
    head gives its files to others.
    """

    def __init__(self, request: FetchRequest, board: Board, store: Store) -> None:
        self.note = ""
        self._request = request
        self._board = board
        self._store = store
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="helper", daemon=True)

    def __enter__(self) -> FetchHelper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def _run(self) -> None:
        try:
            fetching = Fetching(self._request, self._store.folder, self._stopped)
            while self._board.overview is None and not self._stopped.is_set():
                self._board.wait(self._board.version, _TICK_S)
            if self._is_offered(fetching):
                self._fetch(fetching)
            if not self._stopped.is_set():
                self.note = "does not fetch: the source lists other files here than on the head"
        except (HeadfirstError, OSError) as error:
            self.note = f"does not fetch: {error}"
        finally:
            self._board.report(fetches=False)

    def _is_offered(self, fetching: Fetching) -> bool:
        """Whether the head offers the same files."""
        overview = self._board.overview
        return (
            overview is not None
            and overview.made_from == fetching.made_from
            and overview.sizes == fetching.sizes
            and overview.sha256 == fetching.sha256
        )

    def _fetch(self, fetching: Fetching) -> None:
        """Fetch what is given, for as long as it is offered."""
        run = FetchRun(
            fetching,
            self._store.proofs,
            arrived=lambda name, proof: self._board.announce({name: proof}),
            seen=self._see,
        )
        with _Given(run, self._board) as fetches:
            while self._is_offered(fetching) and not self._stopped.is_set():
                member = self._board.members[self._board.index]
                if not member.fetches:  # also after the head was started again
                    self._board.report(fetches=True)
                fetches.step()
                self._board.wait(self._board.version, _TICK_S)

    def _see(self, count: int) -> None:
        with self._board.changed:
            member = self._board.members[self._board.index]
            self._board.report(notify=False, fetched=max(0, member.fetched + count))


class _Given:
    """Brings the files that the head gives to this member, several at a time. A context manager."""

    def __init__(self, run: FetchRun, board: Board) -> None:
        self._run, self._board = run, board
        self._begun: set[str] = set()
        self._running: set[Future[object]] = set()
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, "fetch")

    def __enter__(self) -> _Given:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind:
            self._run.fetching.stopped.set()
        self._pool.shutdown(wait=not kind, cancel_futures=True)

    def step(self) -> None:
        """Begin what is new; raises what a fetch raised."""
        board = self._board
        all_given = board.members[0].given
        files = all_given[board.index] if board.index < len(all_given) else frozenset()
        for name in files - self._begun - board.proofs().keys():
            self._begun.add(name)
            self._running.add(self._pool.submit(self._run.bring, name))
        for future in [future for future in self._running if future.done()]:
            self._running.discard(future)
            future.result()
