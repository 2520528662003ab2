"""An image as a file that `docker load` reads, written without an engine: its ID is known when it is done.

A layer is a tar stream: the same files give the same bytes, on any machine and day.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

# What a build makes is of this time: 1980-01-01, the first that a zip file can hold.
EPOCH = 315532800
_COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class LayerFile:
    """A file of a layer: `size` bytes, first `head`, the rest from the file `source` at the same offset."""

    name: str
    size: int
    executable: bool = False
    head: bytes = b""
    source: Path | None = None


def write_layer(out: IO[bytes], members: Iterable[LayerFile]) -> None:
    """Writes the members, and the folders they need, to `out` as a tar archive. Owner is root."""
    with tarfile.TarFile(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, copybufsize=_COPY_BYTES) as tar:
        folders: set[str] = set()
        for member in sorted(members, key=lambda member: member.name):
            for parent in reversed(Path(member.name).parents[:-1]):
                if (folder := str(parent)) not in folders:
                    folders.add(folder)
                    tar.addfile(_member_header(folder, tarfile.DIRTYPE, 0o755))
            info = _member_header(member.name, tarfile.REGTYPE, 0o755 if member.executable else 0o644)
            info.size = member.size
            if member.source is None:
                tar.addfile(info, io.BytesIO(member.head))
                continue
            with member.source.open("rb") as source:
                source.seek(len(member.head))
                tar.addfile(info, _Joined(member.head, source) if member.head else source)


class _Joined(io.RawIOBase):
    """`head`, then what `rest` still holds."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head[:size], self._head[size:]
        return head + self._rest.read(size - len(head))


def _member_header(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime = kind, mode, EPOCH
    return info


Layer = Callable[[IO[bytes]], None]
"""Writes a layer's tar archive to the stream it is given."""

_CREATED = "1980-01-01T00:00:00Z"


@dataclass(frozen=True)
class ImageArchive:
    """A tarball of one image. `image_id` ("sha256:…") is what Docker's classic store (overlay2) calls it.

    An engine with the containerd image store gives the same image another ID.
    """

    path: Path
    image_id: str
    tag: str


def write(path: Path, tag: str, layers: Mapping[str, Layer], config: Mapping[str, Any]) -> None:
    """Writes the archive to `path`.

    `layers` are named by what made them, lowest first; `config` is the image's own (Env, Cmd, Labels …).
    Each layer is written once, straight into the archive.
    """
    diff_ids: list[str] = []
    with path.open("wb") as out:
        for number, layer in enumerate(layers.values()):
            diff_ids.append("sha256:" + _add_layer(out, f"{number}/layer.tar", layer))
        image = {
            "architecture": "amd64",
            "os": "linux",
            "created": _CREATED,
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
            "history": [{"created": _CREATED, "created_by": name} for name in layers],
        }
        document = json.dumps(image, sort_keys=True).encode()
        digest = hashlib.sha256(document).hexdigest()
        names = [f"{number}/layer.tar" for number in range(len(layers))]
        manifest = [{"Config": f"{digest}.json", "RepoTags": [tag], "Layers": names}]
        documents = {f"{digest}.json": document, "manifest.json": json.dumps(manifest).encode()}
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, data in documents.items():
                tar.addfile(_header(name, len(data)), io.BytesIO(data))


def image_id(path: Path) -> str:
    """The image ID of an archive that `write` made."""
    with tarfile.open(path) as tar:
        manifest = tar.extractfile("manifest.json")
        if manifest is None:
            raise ValueError(f"{path} is no archive of an image")
        config: str = json.load(manifest)[0]["Config"]
        return "sha256:" + config.removesuffix(".json")


def _add_layer(out: IO[bytes], name: str, layer: Layer) -> str:
    """Adds one member whose size is known only when it is written: its header is filled in afterwards."""
    start = out.tell()
    out.write(bytes(tarfile.BLOCKSIZE))
    stream = _Hashing(out)
    layer(stream)  # type: ignore[arg-type]  # tarfile and copyfileobj need write() and tell() only
    out.write(bytes(-stream.size % tarfile.BLOCKSIZE))
    end = out.tell()
    out.seek(start)
    out.write(_header(name, stream.size).tobuf(tarfile.GNU_FORMAT))
    out.seek(end)
    return stream.digest.hexdigest()


class _Hashing:
    """Passes bytes on, counts them and hashes them."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out, self.size, self.digest = out, 0, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.size += len(data)
        self.digest.update(data)
        return self._out.write(data)

    def tell(self) -> int:
        return self.size


def _header(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = size, EPOCH
    return info
