"""What a `docker save` archive holds, read without unpacking it (Python 3.8 or newer)."""

from __future__ import annotations

import hashlib
import json
import tarfile
import typing as t


class ArchiveError(Exception):
    """The file is not an archive that an image can be loaded from; the text states why and what to do."""


def describe(path: str, name: str) -> t.Dict[str, t.Any]:
    """Return {ids, layers, created} of the image `name` in the archive, or of the only one in it.

    `ids` are the IDs that an engine may give it: the digest of its configuration, or, in an engine with
    containerd's image store, that of its manifest. `layers` are the digests of the unpacked layers.
    """
    try:
        with tarfile.open(path, "r:") as archive:  # seeks from header to header; a compressed one could not
            images = _json(archive, "manifest.json")
            image = next((image for image in images if name in (image["RepoTags"] or [])), images[0])
            if len(images) > 1 and name not in (image["RepoTags"] or []):
                raise ArchiveError(f"{path} holds {len(images)} images, and none is named {name}.")
            config = _read(archive, image["Config"])
            index = _json(archive, "index.json") if "index.json" in archive.getnames() else {}
    except FileNotFoundError:
        raise ArchiveError(f"There is no file {path}. Make it with: docker save -o {path} {name}") from None
    except (tarfile.ReadError, KeyError, ValueError) as error:
        raise ArchiveError(
            f"{path} is not an uncompressed archive as docker save writes it ({error})."
            " Unpack it with gunzip, or make it again with docker save."
        ) from None
    known = json.loads(config)
    manifests = [entry["digest"] for entry in index.get("manifests", []) if len(images) == 1]
    return {
        "ids": ["sha256:" + hashlib.sha256(config).hexdigest(), *manifests],
        "layers": known["rootfs"]["diff_ids"],
        "created": known["created"],
    }


def _read(archive: tarfile.TarFile, member: str) -> bytes:
    file = archive.extractfile(member)
    if file is None:
        raise KeyError(member)
    return file.read()


def _json(archive: tarfile.TarFile, member: str) -> t.Any:
    return json.loads(_read(archive, member))
