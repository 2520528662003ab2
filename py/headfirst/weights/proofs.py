"""What proves the files of a folder to other nodes, known without reading them again."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from headfirst.untrusted import UntrustedError, json_document
from headfirst.weights.files import STATE_FOLDER, write_whole
from headfirst.weights.hash_cache import FileRecord, HashCache
from headfirst.weights.hashing import FileHash
from headfirst.weights.manifest import parse_record

_ROOT_BYTES = 32


class Proofs:
    """Hashes by relative path for one folder: records in the hash cache, trees in `.headfirst/trees/`.

    Safe to use from threads.
    """

    def __init__(self, folder: Path) -> None:
        self._records = HashCache(folder)
        self._trees = folder / STATE_FOLDER / "trees"

    def record(self, name: str) -> FileRecord | None:
        """What the manifest says of `name`; None where it is gone or changed since."""
        return self._records.get(name)

    def get(self, name: str) -> FileHash | None:
        """The hashes of `name`; None where it is gone, changed since, or only its record is known."""
        record, remembered = self._records.get(name), self.remembered(name)
        return remembered if record and remembered and remembered.xxh3 == record.xxh3 else None

    def remembered(self, name: str) -> FileHash | None:
        """The hashes that `name` had when it was put here last, whether it is still there or not."""
        path = self._trees / name
        if not path.is_file():
            return None
        header, _, hashes = path.read_bytes().partition(b"\n")
        try:
            record = parse_record(json_document(header, what="the header of a tree"))
        except UntrustedError:  # only a cache: without it the file is hashed again
            return None
        root, layer = hashes[:_ROOT_BYTES], hashes[_ROOT_BYTES:]
        proof = FileHash(record.size, record.xxh3, record.sha256, root, layer)
        return proof if proof.is_consistent else None

    def put(self, name: str, proof: FileHash) -> None:
        """Remember the hashes of `name` as the file is now, on disk too."""
        header = json.dumps(asdict(proof.record)).encode()
        write_whole(self._trees / name, header + b"\n" + proof.root + proof.layer)
        self._records.put(name, proof.record)

    def matches(self, name: str, proof: FileHash) -> bool:
        """Whether `name` is there, whole, and has these hashes. Does not read it."""
        record = self._records.get(name)
        if record is None or (record.size, record.xxh3) != (proof.size, proof.xxh3):
            return False
        if self.get(name) is None:
            self.put(name, proof)
        return True
