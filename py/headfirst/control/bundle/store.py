"""The files of bundles that were read here, by their hashes, and folders in which they have their names."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.state_files import exclusive, read_file, replace_file
from headfirst.common.untrusted import UntrustedError
from headfirst.control.bundle import archive, signature
from headfirst.control.bundle.items import CHUNK, sha256
from headfirst.control.bundle.manifest import BundleFile, BundleManifest, Image
from headfirst.control.machine.packages import Advance

_KINDS = ("files", "views", "images", "archives")
_KEPT = 2  # bundles of a cluster: the last one, and the one that it goes back to


@dataclass(frozen=True)
class Bundle:
    """A bundle whose signature was verified; `signer` is "" for one that was taken without a signature."""

    path: Path
    manifest: BundleManifest
    signer: str


def opened(path: Path, signers: Path | None) -> Bundle:
    """The bundle with its manifest, the signature verified. The files are proven by `unpacked`.

    `signers` is an allowed signers file; None takes a bundle without a signature.
    """
    manifest, signature_bytes = archive.read_head(path)
    if signers is None:
        return Bundle(path, manifest, "")
    if not signature_bytes:
        raise InputError(
            "the bundle is not signed",
            where=str(path),
            hint=(
                "Sign it where it is made (deploy bundle --sign KEY), or accept it "
                "without a signature: --unsigned."
            ),
        )
    return Bundle(path, manifest, signature.verify(manifest.sums, signature_bytes, signers, where=str(path)))


class BundleStore:
    """Files by hash below `folder`. One process at a time: see `only_one`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._blobs = folder / "files"

    @contextmanager
    def only_one(self) -> Iterator[None]:
        """Other processes with this store wait until this closes."""
        self._blobs.mkdir(parents=True, exist_ok=True)
        with exclusive(self._folder):
            for part in self._blobs.glob("*.part"):  # of a run that was killed
                part.unlink()
            yield

    def take(self, bundle: Bundle, advance: Advance) -> None:
        """Prove every file of the bundle and keep it here. UntrustedError for the first that was changed."""
        parts: list[tuple[Path, Path]] = []

        def keep(path: str, file: BundleFile) -> IO[bytes] | None:
            blob = self._blobs / file.sha256
            if blob.is_file() and sha256(blob) == file.sha256:
                return None
            part = blob.with_name(f"{len(parts)}.part")
            parts.append((part, blob))
            return part.open("wb")

        archive.unpack(bundle.path, bundle.manifest, keep, advance)
        for part, blob in parts:
            part.replace(blob)

    def prove_earlier(self, bundle: Bundle, advance: Advance) -> None:
        """The files that the bundle expects from the one before it. NotReadyError where one is not here."""
        what = bundle.manifest.what
        total, done = sum(what.earlier.values()), 0
        for path in what.earlier:
            file = bundle.manifest.files[path]
            blob = self._blobs / file.sha256
            if not blob.is_file() or sha256(blob) != file.sha256:
                raise NotReadyError(
                    f"the bundle contains the difference to bundle {what.since}, whose {path} is not here",
                    where=str(bundle.path),
                    hint=f"Name both, the older one first: --bundle OLD.tar --bundle {bundle.path}",
                )
            done += file.bytes
            advance("verifying files of the bundle before", done, total)

    def keep(self, manifest: BundleManifest) -> None:
        """Record that the bundle's cluster uses it, and remove what no kept bundle has.

        Of each cluster the two bundles that were used last are kept.
        """
        record = self._folder / "kept.json"
        records: dict[str, list[dict[str, Any]]] = json.loads(read_file(record) or "{}")
        cluster = manifest.what.needs.cluster
        before = [bundle for bundle in records.get(cluster, []) if bundle["bundle"] != manifest.sha256]
        latest = {"bundle": manifest.sha256, "has": sorted(_names(manifest))}
        records[cluster] = [latest, *before][:_KEPT]
        replace_file(record, json.dumps(records))
        names = {name for bundles in records.values() for bundle in bundles for name in bundle["has"]}
        for path in [path for kind in _KINDS for path in (self._folder / kind).glob("*")]:
            # Another run may be writing a part.
            if path.suffix != ".part" and f"{path.parent.name}/{path.name}" not in names:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def view(self, manifest: BundleManifest, prefix: str) -> Path:
        """A folder with the bundle's files below `prefix` under their names; the same one the next time."""
        folder = self._folder / "views" / manifest.sha256 / prefix
        for path, file in _below(manifest, prefix).items():
            place = folder / path.removeprefix(f"{prefix}/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            place.hardlink_to(self._blobs / file.sha256)
        return folder

    def image(self, manifest: BundleManifest, image: Image) -> Path:
        """The image as a file that `docker load` reads."""
        layers = {f"{number}/layer.tar": path for number, path in enumerate(image.layers)}
        config = f"{image.id.removeprefix('sha256:')}.json"
        listing = [{"Config": config, "RepoTags": [image.name], "Layers": list(layers)}]
        files = {name: manifest.files[path] for name, path in {**layers, config: image.config}.items()}
        return self._tar(_image_name(manifest, image), files, {"manifest.json": json.dumps(listing).encode()})

    def tar(self, manifest: BundleManifest, prefix: str) -> Path:
        """The files below `prefix` as one uncompressed archive, named by its content."""
        files = {path.removeprefix(f"{prefix}/"): file for path, file in _below(manifest, prefix).items()}
        return self._tar(_archive_name(manifest, prefix), files, {})

    def _tar(self, name: str, files: Mapping[str, BundleFile], texts: Mapping[str, bytes]) -> Path:
        """An archive of this name in the store, made where it is missing: files by path, then texts."""
        target = self._folder / name
        target.parent.mkdir(exist_ok=True)
        if target.is_file():
            return target
        part = target.with_suffix(".part")
        with part.open("wb") as out, tarfile.TarFile(fileobj=out, mode="w", copybufsize=CHUNK) as tar:
            for path, file in files.items():
                with (self._blobs / file.sha256).open("rb") as blob:
                    tar.addfile(archive.header(path, file.bytes), blob)
            for path, data in texts.items():
                tar.addfile(archive.header(path, len(data)), io.BytesIO(data))
        part.replace(target)
        return target


def _names(manifest: BundleManifest) -> set[str]:
    """Everything in a store that belongs to a bundle, as KIND/NAME."""
    folders = {"/".join(path.split("/")[:2]) for path in manifest.files}
    return {
        f"views/{manifest.sha256}",
        *(f"files/{file.sha256}" for file in manifest.files.values()),
        *(_image_name(manifest, image) for image in manifest.what.images),
        *(_archive_name(manifest, folder) for folder in folders),
    }


def _image_name(manifest: BundleManifest, image: Image) -> str:
    parts = [manifest.files[path].sha256 for path in (image.config, *image.layers)]
    return f"images/{hashlib.sha256(repr((image.name, parts)).encode()).hexdigest()}.tar"


def _archive_name(manifest: BundleManifest, prefix: str) -> str:
    hashes = sorted((path, file.sha256) for path, file in _below(manifest, prefix).items())
    return f"archives/{hashlib.sha256(repr(hashes).encode()).hexdigest()}.tar"


def _below(manifest: BundleManifest, prefix: str) -> dict[str, BundleFile]:
    return {path: file for path, file in manifest.files.items() if path.startswith(f"{prefix}/")}


class Accepted:
    """The record in `folder`: when the newest bundle was made, seconds since 1970, by cluster and signer."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / "accepted.json"

    def refuse_older(self, bundle: Bundle, cluster: str) -> None:
        """UntrustedError for a signed bundle that was made before the newest that `record` was given.

        Neither its signer nor the cluster that it was made for matters: it would be used for `cluster`.
        """
        what = bundle.manifest.what
        newest = max(self._read().get(cluster, {}).values(), default=0) if bundle.signer else 0
        if what.made < newest:
            raise UntrustedError(
                f"the bundle was made on {_date(what.made)}, and one of {_date(newest)} was accepted for "
                f"{cluster} before",
                where=str(bundle.path),
                hint="Use the newer one. To return to the older one on purpose: --older-bundle",
            )

    def record(self, bundle: Bundle, cluster: str) -> None:
        """Keep when this bundle was made, unless a newer one is recorded; nothing where it has no signer."""
        if not bundle.signer:
            return
        made_at = bundle.manifest.what.made
        with exclusive(self._folder):
            newest = self._read()
            signers = newest.setdefault(cluster, {})
            signers[bundle.signer] = max(made_at, signers.get(bundle.signer, 0))
            replace_file(self._file, json.dumps(newest, indent=1, sort_keys=True))

    def _read(self) -> dict[str, dict[str, int]]:
        newest: dict[str, dict[str, int]] = json.loads(read_file(self._file) or "{}")
        return newest


def _date(made_at: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(made_at)) if made_at else "an unknown date"
