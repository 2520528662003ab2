"""The folder that a transfer's files arrive in: unfinished ones apart, whole ones under their names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from headfirst.weights import manifest as manifests
from headfirst.weights.files import STATE_FOLDER, list_files, publish
from headfirst.weights.hashing import FileHash
from headfirst.weights.manifest import MANIFEST, Manifest
from headfirst.weights.proofs import Proofs


class Store:
    """One folder that is ours. Methods for different names may be called from different threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = folder / STATE_FOLDER / "received"
        self.proofs = Proofs(folder)

    def holds(self, name: str, proof: FileHash) -> bool:
        """Whether `name` is there, whole, as `proof` says. An empty file is made here and now."""
        if proof.size == 0 and not (self.folder / name).is_file():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).unlink(missing_ok=True)
            (self.folder / name).touch(exist_ok=False)
            self.proofs.put(name, proof)
        return self.proofs.matches(name, proof)

    def is_whole(self, name: str, size: int, xxh3: str) -> bool:
        """Whether `name` is there as it was when it was proven to be this."""
        record = self.proofs.record(name)
        return record is not None and (record.size, record.xxh3) == (size, xxh3)

    def begin(self, name: str) -> None:
        """Put what there is of `name`, finished once and wrong now, where it can be mended."""
        path, part = self.folder / name, self.parts / name
        part.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or part.exists():
            return
        if path.stat().st_nlink > 1:  # somebody's own file, linked here: it is not ours to mend
            shutil.copyfile(path, part)
            path.unlink()
        else:
            path.replace(part)

    def settle(self, name: str, proof: FileHash) -> None:
        """Give a part that was proven its name. It stays a part too, which libtorrent goes on to offer."""
        path, part = self.folder / name, self.parts / name
        with part.open("rb") as file:
            os.fsync(file.fileno())
        path.parent.mkdir(parents=True, exist_ok=True)
        link = path.with_name(f".{path.name}.part")
        link.unlink(missing_ok=True)
        os.link(part, link)
        path.unlink(missing_ok=True)  # where it is this very file a rename would leave both names
        publish(link, path)
        self.proofs.put(name, proof)

    def drop(self, name: str) -> None:
        """Free the disk of a file that nobody needs any more; its proof is remembered."""
        (self.folder / name).unlink(missing_ok=True)
        (self.parts / name).unlink(missing_ok=True)

    def complete(self, manifest: Manifest, *, kept: bool) -> bool:
        """Mark the folder complete, where its files were `kept`; returns whether that is news."""
        if not kept:
            manifests.discard(self.folder)
            return False
        news = manifests.load(self.folder) != manifest
        if news:
            manifests.save(self.folder, manifest)
        return news

    def tidy(self, names: Collection[str] | None) -> None:
        """Remove the parts and, where `names` are given, whatever is none of them."""
        if self.parts.is_dir():
            shutil.rmtree(self.parts)
        for name in set(list_files(self.folder)) - set(names) - {MANIFEST} if names is not None else ():
            (self.folder / name).unlink()
