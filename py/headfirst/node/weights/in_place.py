"""Somebody's folder, served where it is: its files are proven, and a link leads there.

Nothing is written into the folder. The notes are beside the link, so that every command takes the link as it
takes a folder of ours.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from headfirst.common.errors import InputError, NotReadyError
from headfirst.node.weights.fetch.path_source import PathSource
from headfirst.node.weights.files import is_in_place, notes_beside
from headfirst.node.weights.progress import WeightsProgress
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.hash_cache import HashCache
from headfirst.node.weights.proof.manifest import MANIFEST, Manifest


def use_in_place(
    folder: Path, link: Path, origin: Mapping[str, str], seen_elsewhere: Manifest | None = None
) -> tuple[Manifest, bool]:
    """Serve `folder` by `link`; returns the manifest of its files and whether that is news.

    Every file is read, or, with the manifest of a node that has read these same files, only compared by its
    size. Raises InputError where `link` is a folder, NotReadyError where `folder` cannot be served as it is.
    """
    names = [file.name for file in PathSource(str(folder)).list().files]
    _refuse_links_out(folder, names)
    _link(folder, link)
    if seen_elsewhere is None:
        with WeightsProgress("verify") as progress:
            manifest = manifests.build(link, names, origin, progress)
        _compare_with_its_own(folder, manifest)
    else:
        manifest = _taken_over(link, names, seen_elsewhere)
    return manifest, manifests.save(link, manifest)


def _refuse_links_out(folder: Path, names: list[str]) -> None:
    """A container gets the folder alone: a link to its outside, as in a hub's cache, leads nowhere there."""
    base = Path(os.path.realpath(folder))
    for name in names:
        if not Path(os.path.realpath(folder / name)).is_relative_to(base):
            raise NotReadyError(
                f"{name} is a symbolic link that leads out of the model folder, which no container can read",
                where=str(folder),
                hint="Set weights_shared=stage: the files are copied to the nodes.",
            )


def _link(folder: Path, link: Path) -> None:
    """Have the link, and the folder of the notes, of which a link of ours is known."""
    if link.exists() and not link.is_symlink():
        raise InputError(
            "a copy of the model is at the path where the link to the model folder must be",
            where=str(link),
            hint="Remove it, or set weights_shared=stage to use a copy.",
        )
    if link.is_symlink() and not is_in_place(link):
        raise InputError("this link was not made by headfirst", where=str(link), hint="Remove it.")
    notes_beside(link).mkdir(parents=True, exist_ok=True)
    if link.is_symlink() and link.readlink() == folder:
        return
    part = link.with_name(f".{link.name}.link")
    part.unlink(missing_ok=True)
    part.symlink_to(folder, target_is_directory=True)
    part.replace(link)


def _compare_with_its_own(folder: Path, manifest: Manifest) -> None:
    """The folder may hold the manifest of a node that brought it here."""
    folder_manifest = manifests.load(folder)
    if folder_manifest is None:
        return
    hashes = {name: record.xxh3 for name, record in manifest.files.items()}
    wrong = [name for name, record in folder_manifest.files.items() if hashes.get(name) != record.xxh3]
    if wrong:
        listed = ", ".join(wrong[:3])
        raise NotReadyError(
            f"{len(wrong)} file(s) differ from {MANIFEST} in the folder: {listed}",
            where=str(folder),
            hint="Copy these files again, or remove that manifest if they were changed on purpose.",
        )


def _taken_over(link: Path, names: list[str], manifest: Manifest) -> Manifest:
    cache = HashCache(link)
    sizes = {name: (link / name).stat().st_size for name in names}
    if sizes != {name: record.size for name, record in manifest.files.items()}:
        raise NotReadyError(
            "the files are not those that another node has read",
            where=str(link.readlink()),
            hint="Run again when the share shows the same files on all nodes.",
        )
    for name, record in manifest.files.items():
        cache.put(name, record)
    return manifest
