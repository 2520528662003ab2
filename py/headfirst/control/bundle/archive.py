"""The bundle as a file: a tar archive, written and read as a stream.

The manifest comes first, then the files in its order. Equal content gives equal bytes: no times, no owners.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ansible_collections.headfirst.serving.plugins.module_utils import tar_headers

from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError, shown
from headfirst.control.bundle.items import CHUNK, Items
from headfirst.control.bundle.manifest import (
    CONTENTS,
    MAX_CONTENTS,
    MAX_SIGNATURE,
    MAX_SUMS,
    SIGNATURE,
    SUMS,
    BundleFile,
    BundleManifest,
    read,
)
from headfirst.control.machine.packages import Advance

_AGAIN = "Copy the bundle again, or make it again; nothing was installed."

Keep = Callable[[str, BundleFile], "IO[bytes] | None"]
"""Where a file's bytes go while they are proven; None where they are only proven."""


def write(target: Path, manifest: BundleManifest, signature: bytes, items: Items, advance: Advance) -> None:
    """Write the bundle, which has its name only when it is whole. NotReadyError where a file changes."""
    part = target.with_name(f"{target.name}.part")
    total = sum(file.bytes for file in manifest.carried.values())
    done = 0
    with part.open("wb") as out, tarfile.TarFile(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        head = {SUMS: manifest.sums, SIGNATURE: signature, CONTENTS: manifest.contents}
        for name, data in head.items():
            if data:
                tar.addfile(header(name, len(data)), io.BytesIO(data))
        for path, file in manifest.carried.items():
            item, digest = items[path], hashlib.sha256()
            out.write(header(path, file.bytes).tobuf(tar.format, tar.encoding, tar.errors))
            for chunk in item.chunks():
                digest.update(chunk)
                done += len(chunk)
                out.write(chunk)
                advance("writing the bundle", done, total)
            out.write(bytes(-file.bytes % tarfile.BLOCKSIZE))
            if digest.hexdigest() != file.sha256:
                raise NotReadyError(
                    "the file changed while the bundle was made", where=str(item.source), hint="Run again."
                )
            tar.offset = out.tell()
    part.replace(target)


def read_head(path: Path) -> tuple[BundleManifest, bytes]:
    """The manifest and its signature (empty: the bundle is not signed), without the files."""
    with _opened(path) as members:
        return _head(members, path)


def unpack(path: Path, manifest: BundleManifest, keep: Keep, advance: Advance) -> None:
    """Prove every file that the bundle carries, and write those for which `keep` opens a stream.

    `manifest` is the one whose signature was verified. UntrustedError names the first file that was changed,
    is missing or is not in the manifest.
    """
    where, carried = str(path), manifest.carried
    total, done = sum(file.bytes for file in carried.values()), 0
    seen: set[str] = set()
    with _opened(path) as members, path.open("rb") as source:
        again, _ = _head(members, path)
        if again.sums != manifest.sums:
            raise UntrustedError("the bundle changed while it was read", where=where, hint=_AGAIN)
        for info in members:
            file = carried.get(info.name)
            if file is None or info.name in seen:
                raise _changed(f"{shown(info.name)} is not in its manifest", where)
            if info.size != file.bytes or info.sparse is not None:
                what = f"{shown(info.name)} has {info.size} bytes, and {file.bytes} in the manifest"
                raise _changed(what, where)
            seen.add(info.name)
            digest, out = hashlib.sha256(), keep(info.name, file)
            try:
                source.seek(info.offset_data)
                remaining_bytes = info.size
                while remaining_bytes:
                    chunk = source.read(min(CHUNK, remaining_bytes))
                    if not chunk:
                        raise EOFError("it is cut off")
                    remaining_bytes -= len(chunk)
                    digest.update(chunk)
                    done += len(chunk)
                    if out is not None:
                        out.write(chunk)
                    advance("verifying the bundle", done, total)
                if digest.hexdigest() != file.sha256:
                    raise _changed(f"{shown(info.name)} was changed: its hash is another one", where)
            finally:
                if out is not None:
                    out.close()
    if missing := [name for name in carried if name not in seen]:
        raise _changed(f"{shown(missing[0])} is missing: the bundle is cut off", where)


Members = Iterator[tarfile.TarInfo]


@contextmanager
def _opened(path: Path) -> Iterator[Members]:
    """The members one after the other. UntrustedError for what is no tar archive."""
    if not path.is_file():
        raise NotReadyError(f"no such bundle: {path}", hint="Make one: deploy bundle INVENTORY -o FILE")
    try:
        # Uncompressed alone: nothing here can grow while it is read.
        with tar_headers.opened(str(path)) as tar:
            yield _members(tar, str(path))
    except tar_headers.ERRORS as error:
        raise _changed(f"it cannot be read: {shown(str(error))}", str(path)) from None


def _members(tar: tarfile.TarFile, where: str) -> Members:
    for info in tar:
        if not info.isreg():
            raise _changed(f"{shown(info.name)} is not a file", where)
        yield info


def _head(members: Members, path: Path) -> tuple[BundleManifest, bytes]:
    files: dict[str, bytes] = {}
    for name, limit in ((SUMS, MAX_SUMS), (SIGNATURE, MAX_SIGNATURE), (CONTENTS, MAX_CONTENTS)):
        info = next(members, None)
        if info is None:
            break
        if info.name == CONTENTS:  # not signed
            limit = MAX_CONTENTS
        elif info.name != name:
            break
        if info.size > limit:
            raise UntrustedError(f"{info.name} is larger than {limit} bytes", where=str(path))
        files[info.name] = tar_headers.content(str(path), info, limit)
        if info.name == CONTENTS:
            break
    if SUMS not in files or CONTENTS not in files:
        raise UntrustedError("the file is not a bundle", where=str(path), hint="`deploy bundle` makes one.")
    return read(files[SUMS], files[CONTENTS], where=str(path)), files.get(SIGNATURE, b"")


def _changed(what: str, where: str) -> UntrustedError:
    return UntrustedError(what, where=where, hint=_AGAIN)


def header(name: str, size: int) -> tarfile.TarInfo:
    """Of a file, without a time and an owner."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info
