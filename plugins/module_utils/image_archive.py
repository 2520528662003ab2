"""What a `docker save` archive holds, read without unpacking it (Python 3.8 or newer)."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import typing as t

MAX_DOCUMENT = 16 << 20  # bytes of a manifest, an index or a configuration
MAX_READ = 4 * MAX_DOCUMENT  # bytes of all headers and documents together
MAX_MEMBERS = 10_000


class ArchiveError(Exception):
    """The file is not an archive that an image can be loaded from; the text states why and what to do."""


def describe(path: str, name: str) -> t.Dict[str, t.Any]:
    """Return {ids, layers, created} of the image `name` in the archive, or of the only one in it.

    `ids` are the IDs that an engine may give it: the digest of its configuration, or, in an engine with
    containerd's image store, that of its manifest. `layers` are the digests of the unpacked layers.
    """
    try:
        # "r:" seeks from header to header; a compressed archive could not.
        with _BoundedFile(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            names = _names(archive)
            images = _json(archive, "manifest.json")
            image = next((image for image in images if name in (image["RepoTags"] or [])), images[0])
            if len(images) > 1 and name not in (image["RepoTags"] or []):
                raise ArchiveError(f"{path} holds {len(images)} images, and none is named {name}.")
            config = _read(archive, image["Config"])
            index = _json(archive, "index.json") if "index.json" in names else {}
            known = json.loads(config)
            manifests = [entry["digest"] for entry in index.get("manifests", []) if len(images) == 1]
            return {
                "ids": ["sha256:" + hashlib.sha256(config).hexdigest(), *manifests],
                "layers": known["rootfs"]["diff_ids"],
                "created": known["created"],
            }
    except FileNotFoundError:
        raise ArchiveError(f"There is no file {path}. Make it with: docker save -o {path} {name}") from None
    except (tarfile.TarError, LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ArchiveError(
            f"{path} is not an uncompressed archive as docker save writes it ({error})."
            " Unpack it with gunzip, or make it again with docker save."
        ) from None


class _BoundedFile(io.FileIO):
    """A file of which no more than MAX_DOCUMENT bytes are read at a time, and MAX_READ in all."""

    _left = MAX_READ

    def read(self, size: t.Optional[int] = -1) -> bytes:
        """The next bytes; ValueError for more than that."""
        if size is None or not 0 <= size <= MAX_DOCUMENT:
            raise ValueError("a header has more than {} bytes".format(MAX_DOCUMENT))
        self._left -= size
        if self._left < 0:
            raise ValueError("its headers have more than {} bytes together".format(MAX_READ))
        return super().read(size)


def _names(archive: tarfile.TarFile) -> t.Set[str]:
    names: t.Set[str] = set()
    for number, member in enumerate(archive):
        if number == MAX_MEMBERS:
            raise ValueError("it has more than {} files".format(MAX_MEMBERS))
        names.add(member.name)
    return names


def _read(archive: tarfile.TarFile, member: str) -> bytes:
    info = archive.getmember(member)
    # A sparse file of a few bytes has the size that its header states; docker save writes none.
    if not info.isreg() or info.issparse() or info.size > MAX_DOCUMENT:
        raise ValueError("{} is no file of at most {} bytes".format(member, MAX_DOCUMENT))
    file = archive.extractfile(info)
    if file is None:
        raise KeyError(member)
    return file.read()


def _json(archive: tarfile.TarFile, member: str) -> t.Any:
    return json.loads(_read(archive, member))
