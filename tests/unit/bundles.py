"""Bundles for tests: small files, and what a plan with one of them needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headfirst.control.bundle import archive, manifest
from headfirst.control.bundle.items import Item, hashes
from headfirst.control.bundle.manifest import FORMAT, BundleManifest, Contents, Image
from headfirst.control.bundle.needs import BundleNeeds, Packages
from headfirst.control.bundle.systems import System

DEBIAN = System(id="debian", release="12")


def quiet(what: str, done: int, total: int) -> None:
    """Progress that nobody reads."""


def needs(**changes: object) -> BundleNeeds:
    """What a service on CPUs needs."""
    own: dict[str, object] = {
        "headfirst": "0.1.0", "cluster": "lab", "engines": {"": "sglang 0.5.23"},
        "images": ("engine:1",), "models": {}, "systems": (DEBIAN,), "kernels": (),
        "packages": Packages(docker="distribution"),
    }  # fmt: skip
    return BundleNeeds.model_validate(own | changes)


def items(folder: Path, files: Mapping[str, bytes]) -> dict[str, Item]:
    """The files, written below `folder`, by their path in a bundle."""
    found = {}
    for path, data in files.items():
        source = folder / path
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_bytes(data)
        found[path] = Item.of(source)
    return found


def manifest_of(
    found: Mapping[str, Item],
    older: BundleManifest | None = None,
    images: tuple[Image, ...] = (),
    cluster: str = "lab",
) -> BundleManifest:
    """The manifest of a bundle of these items; what `older` has is not carried."""
    digests = hashes(found, quiet)
    held = {file.sha256 for file in older.files.values()} if older else set()
    sizes = {path: item.size for path, item in found.items()}
    return manifest.make(
        Contents(
            format=FORMAT,
            needs=needs(cluster=cluster),
            images=images,
            since=older.id if older else "",
            carried={path: size for path, size in sizes.items() if digests[path] not in held},
            earlier={path: size for path, size in sizes.items() if digests[path] in held},
        ),
        digests,
    )


def write(
    target: Path,
    files: Mapping[str, bytes],
    *,
    older: BundleManifest | None = None,
    signature: bytes = b"",
    cluster: str = "lab",
) -> BundleManifest:
    """A bundle of these files at `target`; its manifest."""
    found = items(target.parent / f"{target.name}-files", files)
    made = manifest_of(found, older, cluster=cluster)
    archive.write(target, made, signature, found, quiet)
    return made
