"""What a `docker save` archive holds, read without unpacking it (Python 3.8 or newer)."""

from __future__ import annotations

import hashlib
import json
import tarfile
import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils import tar_headers

MAX_DOCUMENT = 16 << 20  # bytes of a manifest, an index or a configuration
MAX_MEMBERS = 10_000


class ArchiveError(Exception):
    """The file is not an archive that an image can be loaded from; the text states why and what to do."""


def describe(path: str, name: str) -> t.Dict[str, t.Any]:
    """Return {ids, layers, created} of the image `name` in the archive, or of the only one in it.

    `ids` are the IDs that an engine may give it: the digest of its configuration, or, in an engine with
    containerd's image store, that of its manifest. `layers` are the digests of the unpacked layers.
    """
    try:
        with tar_headers.opened(path) as archive:
            members = _members(archive)
            images = _json(path, members["manifest.json"])
            image = next((image for image in images if name in (image["RepoTags"] or [])), images[0])
            if len(images) > 1 and name not in (image["RepoTags"] or []):
                raise ArchiveError(f"{path} holds {len(images)} images, and none is named {name}.")
            config = tar_headers.content(path, members[image["Config"]], MAX_DOCUMENT)
            index = _json(path, members["index.json"]) if "index.json" in members else {}
            image_config = json.loads(config)
            manifests = [entry["digest"] for entry in index.get("manifests", []) if len(images) == 1]
            return {
                "ids": ["sha256:" + hashlib.sha256(config).hexdigest(), *manifests],
                "layers": image_config["rootfs"]["diff_ids"],
                "created": image_config["created"],
            }
    except FileNotFoundError:
        raise ArchiveError(f"There is no file {path}. Make it with: docker save -o {path} {name}") from None
    except (*tar_headers.ERRORS, LookupError, TypeError, AttributeError) as error:
        raise ArchiveError(
            f"{path} is not an uncompressed archive as docker save writes it ({error})."
            " Unpack it with gunzip, or make it again with docker save."
        ) from None


def _members(archive: tarfile.TarFile) -> t.Dict[str, tarfile.TarInfo]:
    members: t.Dict[str, tarfile.TarInfo] = {}
    for number, member in enumerate(archive):
        if number == MAX_MEMBERS:
            raise ValueError("it has more than {} files".format(MAX_MEMBERS))
        members[member.name] = member
    return members


def _json(path: str, member: tarfile.TarInfo) -> t.Any:
    return json.loads(tar_headers.content(path, member, MAX_DOCUMENT))
