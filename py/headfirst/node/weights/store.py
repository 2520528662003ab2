"""The folder that a transfer's files arrive in: unfinished ones apart, whole ones under their names."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from headfirst.common.safetensors_file import read_shard
from headfirst.node.weights.files import list_files, notes_folder, publish, write_whole
from headfirst.node.weights.layers import partial_index
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.checkpoint_check import INDEX, check_checkpoint, read_index
from headfirst.node.weights.proof.hashing import FileHash, fingerprint, hash_file
from headfirst.node.weights.proof.manifest import LAYERS, MANIFEST, WHOLE, Manifest
from headfirst.node.weights.proof.proofs import Proofs


class Store:
    """One folder that is ours. Methods for different names may be called from different threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = notes_folder(folder) / "received"
        self.whole_index = notes_folder(folder) / INDEX
        """The index as it was received, where that of the folder names only what is there."""
        self.proofs = Proofs(folder)
        self._before = manifests.load(folder)

    def path(self, name: str) -> Path:
        """Where `name` is as it was received."""
        return self.whole_index if name == INDEX and self.whole_index.is_file() else self.folder / name

    def holds(self, name: str, proof: FileHash) -> bool:
        """Whether `name` is there, whole, as `proof` has it. An empty file is made here and now."""
        if self.path(name) == self.whole_index:
            remembered = self.proofs.remembered(name)
            return remembered is not None and remembered.pieces == proof.pieces
        if proof.size == 0 and not (self.folder / name).is_file():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).unlink(missing_ok=True)
            (self.folder / name).touch(exist_ok=False)
            self.proofs.put(name, proof)
        return self.proofs.matches(name, proof)

    def has_proven(self, name: str, proof: FileHash) -> bool:
        """Whether `name` is there, and this node itself has found `proof` in it, or all but its sha256."""
        return self.proofs.get(name) in (proof, replace(proof, sha256=None))

    def has_sent_bytes(self, name: str, proof: FileHash) -> bool:
        """Whether the part that was received has all hashes of `proof`. Reads it."""
        return hash_file(self.parts / name, with_sha256=True) == proof

    def is_whole(self, name: str, size: int, xxh3: str) -> bool:
        """Whether `name` is there as it was when it was proven to be this."""
        record = self.proofs.records.get(name)
        return record is not None and (record.size, record.xxh3) == (size, xxh3)

    def begin(self, name: str, *, repair: bool) -> None:
        """Make room for a part of `name`; with `repair` of what there is of it, finished once and wrong now.

        Without it what has the name is not written to, whatever comes.
        """
        path, part = self.folder / name, self.parts / name
        part.parent.mkdir(parents=True, exist_ok=True)
        if part.exists() and part.stat().st_nlink > 1:  # a run ended before `release`
            part.unlink()
        if not repair or not path.is_file() or part.exists():
            return
        if path.stat().st_nlink > 1:  # somebody's own file, linked here: it is not ours to repair
            shutil.copyfile(path, part)
            path.unlink()
        else:
            path.replace(part)

    def settle(self, name: str, proof: FileHash) -> None:
        """Give a part that was proven its name; until `release` it has both."""
        path, part = self.folder / name, self.parts / name
        with part.open("rb") as file:
            os.fsync(file.fileno())
        path.parent.mkdir(parents=True, exist_ok=True)
        link = path.with_name(f".{path.name}.part")
        link.unlink(missing_ok=True)
        os.link(part, link)
        if path.exists() and path.samefile(part):  # a rename would leave both names
            link.unlink()
        else:
            publish(link, path)
        self.proofs.put(name, proof)

    def release(self, name: str) -> None:
        """Give up the name that a settled file had as a part."""
        (self.parts / name).unlink(missing_ok=True)

    def drop(self, name: str) -> None:
        """Free the disk of a file that nobody needs any more; its proof is remembered."""
        (self.folder / name).unlink(missing_ok=True)
        (self.parts / name).unlink(missing_ok=True)

    def restore_index(self) -> None:
        """Have the index name all files again, as all members list them."""
        if self.whole_index.is_file():
            manifests.discard(self.folder)
            publish(self.whole_index, self.folder / INDEX)
            known, proof = self.proofs.remembered(INDEX), hash_file(self.folder / INDEX)
            self.proofs.put(INDEX, known if known and known.xxh3 == proof.xxh3 else proof)

    def divide(self, whole: Manifest, names: Collection[str], layers: str) -> Manifest:
        """Have the index name the files `names` only, which have `layers`; the manifest of this part.

        NotReadyError where a shard does not hold what the index names.
        """
        shards = [read_shard(self.folder / name) for name in names if name.endswith(".safetensors")]
        sizes = {
            tensor.name: tensor.end - tensor.start for shard in shards for tensor in shard.tensors.values()
        }
        document = partial_index(read_index(self.folder), {shard.path.name for shard in shards}, sizes)
        manifests.discard(self.folder)
        self.whole_index.unlink(missing_ok=True)
        os.link(self.folder / INDEX, self.whole_index)
        write_whole(self.folder / INDEX, (json.dumps(document, indent=2) + "\n").encode())
        record = fingerprint(self.folder / INDEX)
        self.proofs.records.put(INDEX, record)
        check_checkpoint(self.folder)
        files = {name: whole.files[name] for name in names} | {INDEX: record}
        return Manifest(files, {**whole.origin, LAYERS: layers, WHOLE: whole.digest})

    def complete(self, manifest: Manifest, *, kept: bool) -> bool:
        """Mark the folder complete, where its files were `kept`; returns whether that is news."""
        if not kept:
            manifests.discard(self.folder)
            return False
        manifests.save(self.folder, manifest)
        news, self._before = self._before != manifest, manifest
        return news

    def tidy(self, names: Collection[str] | None) -> None:
        """Remove the parts and, where `names` are given, whatever is none of them."""
        if self.parts.is_dir():
            shutil.rmtree(self.parts)
        for name in set(list_files(self.folder)) - set(names) - {MANIFEST} if names is not None else ():
            (self.folder / name).unlink()
