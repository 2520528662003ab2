"""What proves the files of a folder to other nodes, known without reading them again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from headfirst.common.untrusted import UntrustedError, json_document
from headfirst.node.weights.files import contained, notes_folder, write_whole
from headfirst.node.weights.proof.hash_cache import HashCache
from headfirst.node.weights.proof.hashing import FileHash, hash_file
from headfirst.node.weights.proof.manifest import HASH_THREADS, parse_record


class Proofs:
    """Hashes by relative path for one folder. Safe to use from threads.

    Records are in the hash cache, digests of pieces in `.headfirst/pieces/`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.records = HashCache(folder)
        self._pieces = notes_folder(folder) / "pieces"
        self._lock = threading.Lock()

    def get(self, name: str) -> FileHash | None:
        """The hashes of `name`; None where it is gone, changed since, or only its record is known."""
        record, remembered = self.records.get(name), self.remembered(name)
        return remembered if record and remembered and remembered.xxh3 == record.xxh3 else None

    def remembered(self, name: str) -> FileHash | None:
        """The hashes that `name` had when it was put here last, whether it is still there or not."""
        path = self._pieces / name
        if not path.is_file():
            return None
        header, _newline, pieces = path.read_bytes().partition(b"\n")
        try:
            record = parse_record(json_document(header, what="the record of a file"))
        except UntrustedError:  # only a cache: without it the file is hashed again
            return None
        proof = FileHash(record.size, record.xxh3, record.sha256, pieces)
        return proof if proof.is_consistent else None

    def put(self, name: str, proof: FileHash) -> None:
        """Remember the hashes of `name` as the file is now, on disk too."""
        header = json.dumps(asdict(proof.record)).encode()
        with self._lock:
            write_whole(self._pieces / name, header + b"\n" + proof.pieces)
            self.records.put(name, proof.record)

    def matches(self, name: str, proof: FileHash) -> bool:
        """Whether `name` is there, whole, and has these hashes. Does not read it."""
        record = self.records.get(name)
        if record is None or (record.size, record.xxh3) != (proof.size, proof.xxh3):
            return False
        if (known := self.get(name)) is None:
            self.put(name, proof)
            return True
        return known.pieces == proof.pieces  # xxh3 resists no attacker, who may have been a mirror once

    def prove(self, names: Iterable[str], seen: Callable[[int], object]) -> None:
        """Hash the files whose hashes are not known, several at a time; `seen` as for hash_file."""

        def prove(name: str) -> None:
            if known := self.get(name):
                seen(known.size)
            else:
                self.put(name, hash_file(contained(self._folder, name), seen))

        with ThreadPoolExecutor(HASH_THREADS) as pool:
            for _proven in pool.map(prove, names):
                pass
