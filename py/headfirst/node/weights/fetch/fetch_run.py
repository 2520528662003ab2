"""One run over the files of a listing: what is there is proven, the rest is brought, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Container
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from headfirst.common.errors import NotReadyError
from headfirst.node.weights.fetch.fetch_file import bring_file, part_path
from headfirst.node.weights.fetch.fetching import Fetching, FetchRequest
from headfirst.node.weights.fetch.partial_file import FetchStoppedError
from headfirst.node.weights.fetch.source import Listing, RemoteFile
from headfirst.node.weights.files import STATE_FOLDER, claim, list_files, refuse_links, require_space
from headfirst.node.weights.progress import WeightsProgress
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.checkpoint_check import CONFIG, INDEX, check_checkpoint, read_index
from headfirst.node.weights.proof.hash_cache import FileRecord
from headfirst.node.weights.proof.hashing import FileHash, hash_file
from headfirst.node.weights.proof.manifest import MANIFEST, Manifest
from headfirst.node.weights.proof.proofs import Proofs

MOST_AT_ONCE = 8
"""Files that one machine fetches at a time."""


class FetchRun:
    """Makes the target of `fetching` hold its files. Where that is not in place, it is made ours first.

    `proofs` are those of the target. Known files that it can be `without` are not brought again. `arrived`
    is called, from several threads, for each file once it is there and proven; `seen` with the bytes of all
    files as they come, or are known to be there.
    """

    def __init__(
        self,
        fetching: Fetching,
        proofs: Proofs,
        *,
        without: Container[str] = (),
        arrived: Callable[[str, FileHash], object] = lambda _name, _proof: None,
        seen: Callable[[int], object] = lambda _count: None,
    ) -> None:
        self.fetching = fetching
        self._files = {file.name: file for file in fetching.listing.files}
        self._target = fetching.target
        self._proofs = proofs
        self._without = without
        self._arrived = arrived
        self._seen = seen
        self._first: dict[str, FileRecord] = {}
        self.changed = False
        """Whether a file had to be brought."""
        if fetching.in_place:
            refuse_links(self._target / STATE_FOLDER)
        else:
            claim(self._target)
            _remove_others(fetching.listing, self._target)

    def bring_all(self) -> dict[str, FileRecord]:
        """Bring and prove every file; the first failure ends all, and is raised."""
        records = dict(self.bring_first())
        with ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="fetch") as pool:
            futures = {pool.submit(self.bring, name): name for name in self.others()}
            try:
                for future in as_completed(futures):
                    records[futures[future]] = future.result()
            except BaseException:
                self.fetching.stopped.set()
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
        record = self.fetching.fetched.records.get(file.name)
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
            placed = self.fetching.source.place(file, self._target)
            proof = self._proven(file) if placed else self._brought(file)
        self.fetching.fetched.put(file.name, proof.record)
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
        if not self.fetching.in_place:
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
        of = self.fetching
        proof = bring_file(of.source, file, of.listing, self._target, self._seen, of.stopped)
        self._proofs.put(file.name, proof)
        return proof


def fetch(request: FetchRequest, target: Path) -> tuple[Manifest, bool]:
    """Make `target` the checkpoint that is asked for. Returns its manifest and whether anything was done.

    A second call continues where the first one stopped.
    """
    fetching = Fetching(request, target)
    require_space(target, fetching.missing_bytes(), "fetch the model")
    before = manifests.load(target)
    with WeightsProgress("fetch", sum(fetching.sizes.values())) as progress:
        run = FetchRun(fetching, Proofs(target), seen=progress.add)
        manifest = Manifest(run.bring_all(), fetching.made_from)
    check_checkpoint(target)
    manifests.save(target, manifest)
    return manifest, run.changed or manifest != before


def _remove_others(listing: Listing, target: Path) -> None:
    """Remove what is no part of the checkpoint, and unfinished files of other versions of it."""
    others = set(list_files(target)) - {file.name for file in listing.files} - {MANIFEST}
    if others:
        manifests.discard(target)
    for name in others:
        (target / name).unlink()
    parts = {part_path(file, listing, target) for file in listing.files}
    for path in (target / STATE_FOLDER / "parts").glob("*"):
        if path not in parts:
            path.unlink()
