"""Images as parts of a bundle: a configuration and layers, of archives on this machine or from registries."""

from __future__ import annotations

import hashlib
import posixpath
import tarfile
from pathlib import Path
from typing import Any

from ansible_collections.headfirst.serving.plugins.module_utils import tar_headers

from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError, hex_digest, json_document, shown
from headfirst.control.bundle.items import Item
from headfirst.control.bundle.manifest import Image
from headfirst.control.machine import engine
from headfirst.control.machine.packages import Advance

_PLATFORM = "linux/amd64"
_MAX_DOCUMENT = 8 << 20
_HINT = "Make the archive again: docker save IMAGE -o FILE"


def parts(archive: Path, name: str, digest: str = "") -> tuple[Image, dict[str, Item]]:
    """An image of a `docker save` archive, and its files by path in the bundle; nothing is unpacked.

    `name` is what the plan calls the image. UntrustedError where the archive is not whole.
    """
    try:
        return _parts(archive, name, digest)
    except tar_headers.ERRORS as error:
        raise UntrustedError(shown(str(error)), where=str(archive), hint=_HINT) from None


def _parts(archive: Path, name: str, digest: str) -> tuple[Image, dict[str, Item]]:
    where = str(archive)
    with tar_headers.opened(where) as tar:
        members = {info.name: info for info in tar}

        def file(path: Any) -> tarfile.TarInfo:
            # Some versions of Docker write a layer that two images share as a link.
            info = members.get(path) if isinstance(path, str) else None
            if info is not None and info.issym():
                target = posixpath.join(posixpath.dirname(info.name), info.linkname)
                info = members.get(posixpath.normpath(target))
            if info is None or not info.isreg():
                raise UntrustedError(f"the archive has no {shown(str(path))}", where=where, hint=_HINT)
            return info

        def read(path: Any) -> bytes:
            return tar_headers.content(where, file(path), _MAX_DOCUMENT)

        def document(data: bytes, path: str) -> Any:
            return json_document(data, what=shown(path), where=where, limit=_MAX_DOCUMENT)

        entry = _entry(document(read("manifest.json"), "manifest.json"), name, where)
        config = file(entry.get("Config"))
        layers = [file(path) for path in entry.get("Layers") or ()]
        data = read(config.name)
        diff_ids = _diff_ids(document(data, config.name), where)
    if len(diff_ids) != len(layers):
        raise UntrustedError("the image has other layers than its configuration", where=where, hint=_HINT)
    id = hashlib.sha256(data).hexdigest()
    paths = [f"images/layers/{diff_id}.tar" for diff_id in diff_ids]
    files = zip(paths, layers, strict=True)
    items = {path: Item(archive, info.offset_data, info.size) for path, info in files}
    items[f"images/{id}.json"] = Item(archive, config.offset_data, config.size)
    image = Image(
        name=name, id=f"sha256:{id}", digest=digest, config=f"images/{id}.json", layers=tuple(paths)
    )
    return image, items


def pulled(folder: Path, name: str, advance: Advance) -> tuple[Path, str]:
    """The archive of an image in a registry, and its digest there; `folder` keeps it.

    This machine's Docker Engine pulls it, which keeps the layers that an interrupted pull has brought.
    """
    from docker.errors import APIError, DockerException

    advance(f"pulling {name}", 0, 0)
    client = engine.ensure(advance)
    try:
        for event in client.api.pull(name, platform=_PLATFORM, stream=True, decode=True):
            if "error" in event:
                raise _unreached(name, event["error"])
            detail = event.get("progressDetail") or {}
            if detail.get("total"):
                advance(f"pulling {name}: {event.get('id', '')}", detail["current"], detail["total"])
        image = client.images.get(name)
        digest = next(iter(image.attrs.get("RepoDigests") or ()), "").partition("@")[2]
        target = folder / f"{str(image.id).removeprefix('sha256:')}.tar"
        if not target.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            part, done, size = target.with_suffix(".part"), 0, int(image.attrs.get("Size") or 0)
            with part.open("wb") as out:
                for chunk in client.api.get_image(str(image.id)):
                    done += out.write(chunk)
                    advance(f"saving {name}", min(done, size), size)
            part.replace(target)
    except (APIError, DockerException) as error:
        raise _unreached(name, str(error)) from None
    return target, digest


def _unreached(name: str, why: str) -> NotReadyError:
    return NotReadyError(
        f"the image {name} cannot be pulled: {shown(why)}",
        hint=f"Check with `docker pull {name}` that the registry answers, then repeat the command.",
    )


def _entry(listing: Any, name: str, where: str) -> dict[str, Any]:
    """The image of this name, or the only one: a saved ID has no name."""
    entries = [entry for entry in listing if isinstance(entry, dict)] if isinstance(listing, list) else []
    tagged_entries = [entry for entry in entries if name in (entry.get("RepoTags") or ())]
    matches = tagged_entries or (entries if len(entries) == 1 else [])
    if not matches:
        raise UntrustedError(f"the archive has no image {name}", where=where, hint=_HINT)
    return matches[0]


def _diff_ids(config: Any, where: str) -> list[str]:
    root = config.get("rootfs") if isinstance(config, dict) else None
    diff_ids = root.get("diff_ids") if isinstance(root, dict) else None
    if not isinstance(diff_ids, list):
        raise UntrustedError("the image's configuration lists no layers", where=where, hint=_HINT)
    texts = [value.removeprefix("sha256:") if isinstance(value, str) else value for value in diff_ids]
    return [hex_digest(text, what="a layer's ID", where=where, digits=64) for text in texts]
