"""One run over the files of a listing: what is there is proven, the rest is brought, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Event

from headfirst.common.errors import NotReadyError
from headfirst.node.weights.fetch.fetch_file import bring_file
from headfirst.node.weights.fetch.partial_file import FetchStoppedError
from headfirst.node.weights.fetch.source import Listing, RemoteFile, Source
from headfirst.node.weights.files import STATE_FOLDER, write_whole
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.checkpoint_check import CONFIG, INDEX, read_index
from headfirst.node.weights.proof.hash_cache import FileRecord
from headfirst.node.weights.proof.hashing import FileHash, hash_file
from headfirst.node.weights.proof.manifest import Manifest
from headfirst.node.weights.proof.proofs import Proofs


class Fetched:
    """What was proven of one listing, also by earlier runs, and of files that were removed since.

    Records by relative path in a manifest that grows, `.headfirst/fetched.json`. `made_from` is its origin
    part; records of another one are discarded. Safe to use from threads.
    """

    def __init__(self, folder: Path, made_from: Mapping[str, str]) -> None:
        self._file = folder / STATE_FOLDER / "fetched.json"
        self._made_from = made_from
        self._lock = threading.Lock()
        self.records: dict[str, FileRecord] = {}
        if self._file.is_file():
            noted = manifests.parse(self._file.read_bytes(), str(self._file))
            self.records = dict(noted.files) if noted.origin == made_from else {}

    def put(self, name: str, record: FileRecord) -> None:
        """Record that `name` matches the source, on disk too."""
        with self._lock:
            if self.records.get(name) != record:
                self.records[name] = record
                write_whole(self._file, Manifest(self.records, self._made_from).dumps())


class FetchRun:
    """Makes `target` hold the files of `listing`; `fetched` is what was proven of just these so far."""

    def __init__(
        self,
        source: Source,
        listing: Listing,
        target: Path,
        proofs: Proofs,
        fetched: Fetched,
        *,
        without: Container[str],
        in_place: bool,
        arrived: Callable[[str, FileHash], object],
        seen: Callable[[int], object],
        stopped: Event,
    ) -> None:
        self._source = source
        self._listing = listing
        self._files = {file.name: file for file in listing.files}
        self._target = target
        self._proofs = proofs
        self._fetched = fetched
        self._without = without
        self._in_place = in_place
        self._arrived = arrived
        self._seen = seen
        self._stopped = stopped
        self._first: dict[str, FileRecord] = {}
        self.changed = False
        """Whether a file had to be brought."""

    def bring_all(self, threads: int) -> dict[str, FileRecord]:
        """Bring and prove every file; the first failure ends all, and is raised."""
        records = dict(self.bring_first())
        with ThreadPoolExecutor(threads, thread_name_prefix="fetch") as pool:
            futures = {pool.submit(self.bring, name): name for name in self.others()}
            try:
                for future in as_completed(futures):
                    records[futures[future]] = future.result()
            except BaseException:
                self._stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return records

    def bring_first(self) -> dict[str, FileRecord]:
        """Fetch the files that list the other files, once."""
        if not self._first:
            self._first = {name: self.bring(name) for name in (CONFIG, INDEX) if name in self._files}
        return self._first

    def others(self) -> list[str]:
        """All other files, once the first are there: small ones, then the shards as the index names them."""
        files = self._files.keys() - {CONFIG, INDEX}
        shards = list(dict.fromkeys(read_index(self._target).values()))
        if absent := [name for name in shards if name not in files]:
            raise NotReadyError(
                f"{INDEX} names {len(absent)} shard(s) that are not there: {', '.join(absent[:3])}",
                where=str(self._target),
                hint="The source lacks them: choose another source or revision.",
            )
        small = sorted(files - set(shards), key=lambda name: (self._files[name].size, name))
        return [*small, *shards]

    def bring(self, name: str) -> FileRecord:
        """Bring and prove one file. Several threads may do so at once, for different files."""
        try:
            return self._record(self._files[name])
        except FetchStoppedError as error:
            raise NotReadyError("the fetch was stopped", hint="Run again: it continues.") from error

    def _record(self, file: RemoteFile) -> FileRecord:
        record = self._fetched.records.get(file.name)
        if record and file.name in self._without and not (self._target / file.name).exists():
            self._seen(file.size)
            return record
        try:
            proof = self._kept(file, record)
        except FileNotFoundError:  # this node has converted it and removed it just now
            return self._record(file)
        if proof is None:
            self.changed = True
            manifests.discard(self._target)
            placed = self._source.place(file, self._target)
            proof = self._proven(file) if placed else self._brought(file)
        self._fetched.put(file.name, proof.record)
        self._arrived(file.name, proof)
        return proof.record

    def _kept(self, file: RemoteFile, record: FileRecord | None) -> FileHash | None:
        """The proof of a file that is there already; None, and the file removed, where it is another one.

        Where the source states no sha256 it is compared with what is known of it.
        """
        path = self._target / file.name
        if not path.is_file() or not (file.sha256 or record):
            return None
        if path.stat().st_size == file.size:
            proof = self._proven(file)
            if proof.sha256 == file.sha256 if file.sha256 else record and proof.xxh3 == record.xxh3:
                return proof
            self._seen(-file.size)
        if not self._in_place:
            path.unlink()
        return None

    def _proven(self, file: RemoteFile) -> FileHash:
        proof = self._proofs.get(file.name)
        if proof and (proof.sha256 or not file.sha256):
            self._seen(file.size)
            return proof
        proof = hash_file(self._target / file.name, self._seen, with_sha256=file.sha256 is not None)
        self._proofs.put(file.name, proof)
        return proof

    def _brought(self, file: RemoteFile) -> FileHash:
        proof = bring_file(self._source, file, self._listing, self._target, self._seen, self._stopped)
        self._proofs.put(file.name, proof)
        return proof
