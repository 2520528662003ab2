"""The manifest of a bundle: SHA256SUMS, which is signed, and bundle.json, which it covers.

SHA256SUMS has the form that sha256sum reads, so that a bundle can be checked before Headfirst is installed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from headfirst import __version__
from headfirst.common.untrusted import (
    UntrustedError,
    file_listing,
    hex_digest,
    integer,
    json_document,
    relative_path,
    shown,
)
from headfirst.control.bundle.needs import BundleNeeds
from headfirst.decide.frozen import Frozen

SUMS, SIGNATURE, CONTENTS = "SHA256SUMS", "SHA256SUMS.sig", "bundle.json"
FORMAT = 1
MAX_SUMS = 32 << 20
MAX_SIGNATURE = 64 << 10
MAX_CONTENTS = 64 << 20
_MAX_FILE = 1 << 44
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


@dataclass(frozen=True)
class BundleFile:
    """A file of a bundle."""

    bytes: int
    sha256: str


class Image(Frozen):
    """An image, as parts: equal layers of two images, or of two bundles, are one file.

    `answers` are those of its engine to Headfirst's probes, by the name of the probe.
    """

    name: str
    id: str  # "sha256:…" of its configuration
    digest: str  # in the registry that it came from; "" for one that was built
    config: str  # path in the bundle
    layers: tuple[str, ...]
    answers: dict[str, dict[str, Any]] = Field(default_factory=dict)


class Contents(Frozen):
    """bundle.json. `carried` are bytes by path of the files in this bundle, `earlier` of those in others.

    `made` is when, in seconds since 1970; 0 where it is not recorded.
    """

    format: int
    needs: BundleNeeds
    images: tuple[Image, ...]
    since: str  # id of the bundle that has the earlier files; "" where all are carried
    carried: dict[str, int]
    earlier: dict[str, int]
    made: int = Field(default=0, ge=0, lt=1 << 34)


@dataclass(frozen=True)
class BundleManifest:
    """Both files as bytes and what they state; `files` are all of them, also the earlier ones."""

    sums: bytes
    contents: bytes
    what: Contents
    files: Mapping[str, BundleFile]

    @property
    def sha256(self) -> str:
        """Hash of what is signed, as hexadecimal digits."""
        return hashlib.sha256(self.sums).hexdigest()

    @property
    def id(self) -> str:
        """Names the bundle for people: 12 digits of its hash."""
        return self.sha256[:12]

    @property
    def carried(self) -> dict[str, BundleFile]:
        """The files that are in the bundle itself, in their order there."""
        return {path: file for path, file in self.files.items() if path in self.what.carried}


def make(what: Contents, hashes: Mapping[str, str]) -> BundleManifest:
    """The manifest of `what`, with the sha256 of every file by path."""
    orders = {name: dict(sorted(getattr(what, name).items())) for name in ("carried", "earlier")}
    what = what.model_copy(update=orders)
    contents = (what.model_dump_json(indent=1) + "\n").encode()
    lines = {CONTENTS: hashlib.sha256(contents).hexdigest(), **dict(sorted(hashes.items()))}
    sums = "".join(f"{digest}  {path}\n" for path, digest in lines.items()).encode()
    return read(sums, contents, where="the new bundle")


def read(sums: bytes, contents: bytes, *, where: str) -> BundleManifest:
    """Both files, checked against each other. UntrustedError where they break their form."""
    hashes = _hashes(sums, where)
    if hashes.pop(CONTENTS, "") != hashlib.sha256(contents).hexdigest():
        raise UntrustedError(f"{CONTENTS} was changed: its hash is not the one in {SUMS}", where=where)
    document = json_document(contents, what=CONTENTS, where=where, limit=MAX_CONTENTS)
    if isinstance(document, dict) and document.get("format") != FORMAT:
        raise UntrustedError(
            f"the bundle has format {shown(str(document.get('format')))}, and this Headfirst reads {FORMAT}",
            where=where,
        )
    try:
        what = Contents.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UntrustedError(
            f"{CONTENTS}: {shown(place)}: {first['msg']}",
            where=where,
            hint=f"Another version of Headfirst may have made it: this is {__version__}.",
        ) from None
    sizes = {**what.carried, **what.earlier}
    if set(sizes) != set(hashes) or len(sizes) != len(what.carried) + len(what.earlier):
        raise UntrustedError(f"{CONTENTS} and {SUMS} list other files", where=where)
    for image in what.images:
        if not {image.config, *image.layers} <= set(sizes):
            raise UntrustedError(f"the image {shown(image.name)} lacks a layer", where=where)
        if image.id != f"sha256:{hashes[image.config]}":
            raise UntrustedError(
                f"the ID of the image {shown(image.name)} is not the hash of its configuration", where=where
            )
    for model in what.needs.weights:
        if (
            model.folder
            and relative_path(model.folder, what="a model's folder", where=where).parts[0] != "models"
        ):
            raise UntrustedError(f"a model's folder is not below models: {shown(model.folder)}", where=where)
    files = {
        path: BundleFile(integer(sizes[path], what="a file's size", where=where, high=_MAX_FILE), digest)
        for path, digest in hashes.items()
    }
    return BundleManifest(sums, contents, what, files)


def _hashes(sums: bytes, where: str) -> dict[str, str]:
    try:
        lines = sums.decode().splitlines()
    except UnicodeDecodeError:
        raise UntrustedError(f"{SUMS} is not UTF-8", where=where) from None
    matches = [_LINE.fullmatch(line) for line in lines]
    if not lines or None in matches:
        raise UntrustedError(f"{SUMS} is not a list of hashes", where=where)
    pairs = [match.groups() for match in matches if match]
    paths = file_listing([path for _, path in pairs], where=where)
    digests = [hex_digest(digest, what="a hash", where=where, digits=64) for digest, _ in pairs]
    return dict(zip(paths, digests, strict=True))
