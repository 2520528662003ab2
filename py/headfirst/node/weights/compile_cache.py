"""What the ranks of a start compiled, as a folder that travels like weights: one tensor, which is an archive.

The role `engine` takes it where all ranks serve. A container uses it once it is proven: when each host has it
(decide/engines/compile_cache.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import docker
from ansible_collections.headfirst.serving.plugins.module_utils.compile_cache import (
    FOLDER,
    KEPT,
    LIVE,
    group,
    mounted,
    remove,
)
from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import FOLDER as AS_FOLDER

from headfirst.common.container_state import ContainerState, container_state
from headfirst.common.errors import NotReadyError
from headfirst.common.state_files import replace_file
from headfirst.node.weights.fetch.fetching import FetchRequest
from headfirst.node.weights.files import STATE_FOLDER, claim, gigabytes, open_contained
from headfirst.node.weights.progress import WeightsProgress
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.checkpoint_check import CONFIG, read_json
from headfirst.node.weights.proof.manifest import MANIFEST
from headfirst.node.weights.status import pinned_now

ARCHIVE, PROVEN = "compiled.safetensors", f"{STATE_FOLDER}/proven"
LIMIT = 20 * 10**9  # bytes of all that is kept on a host
_SETTLED_NS = 2 * 10**9  # a file that changed later is still being written
_Files = Mapping[str, tuple[int, int]]


def take(name: str, start: str) -> Path | None:
    """Keep what the container `name` compiled; its folder, None where it compiled nothing.

    `start` names the start of all ranks. NotReadyError where the rank ended or still compiles, and where it
    would be more than 20 GB.
    """
    state, mounts = _described(name)
    kept, live = Path(mounts[KEPT]), Path(mounts[LIVE])
    before = _settled(live)
    if not before:
        return None
    claim(kept)
    drop(kept)
    size = sum(size for size, _time in before.values())
    room = LIMIT - sum(path.stat().st_size for path in Path(FOLDER).glob(f"*/{ARCHIVE}"))
    if size > (room := min(room, shutil.disk_usage(kept).free)):
        raise NotReadyError(
            f"{gigabytes(size)} were compiled, and there is room for {gigabytes(max(0, room))}", where=FOLDER
        )
    part = kept / STATE_FOLDER / "taken"
    with part.open("wb") as file, WeightsProgress("keep what was compiled", size) as progress:
        _write(file, live, before, progress)
    if _files(live) != before:
        raise NotReadyError("the rank still compiles", where=name)
    if _described(name)[0] != state:
        raise NotReadyError("the rank was started again meanwhile", where=name)
    part.replace(kept / ARCHIVE)
    replace_file(kept / CONFIG, json.dumps({"image": state.image_id, "start": start}))
    request = FetchRequest(AS_FOLDER.name, str(kept))
    origin = request.origin | {"pinned": pinned_now(request)}
    manifests.save(kept, manifests.build(kept, [ARCHIVE, CONFIG], origin))
    return kept


def prove(folder: Path) -> None:
    """Have containers use what is kept here. NotReadyError where it is not whole."""
    manifest = manifests.load(folder)
    if manifest is None:
        raise NotReadyError("nothing that was compiled is kept here", where=str(folder))
    with (folder / ARCHIVE).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    replace_file(folder / PROVEN, f"{digest} {manifest.digest}\n")


def drop(folder: Path) -> None:
    """Have no container use what is kept here, and remove it."""
    for name in (PROVEN, MANIFEST, ARCHIVE):
        (folder / name).unlink(missing_ok=True)


def prune(planned: Sequence[str]) -> None:
    """Remove what is neither planned nor mounted by a container."""
    containers = docker.from_env().containers.list(all=True, ignore_removed=True)
    needed = {*map(group, planned), *mounted(container.attrs for container in containers)}
    remove({group(folder.name) for folder in Path(FOLDER).glob("*-*")} - needed)


def state(folder: Path, image: str = "") -> str:
    """`proven` or `kept`, and the start that it is of; `none` where nothing is kept of this image."""
    manifest = manifests.load(folder)
    config = read_json(folder / CONFIG) if manifest else {}
    if manifest is None or (image and config.get("image") != docker.from_env().images.get(image).id):
        return "none"
    proven = folder / PROVEN
    is_proven = proven.is_file() and proven.read_text().split()[1:] == [manifest.digest]
    return f"{'proven' if is_proven else 'kept'} {config.get('start')}"


def _described(name: str) -> tuple[ContainerState, dict[str, str]]:
    """The container, which runs, and its folders on the host by their places in it."""
    description = docker.from_env().api.inspect_container(name)
    found = container_state(description, where=name)
    if not found.running:
        raise NotReadyError("the rank has ended", where=name)
    return found, {mount["Destination"]: mount["Source"] for mount in description["Mounts"]}


def _settled(folder: Path) -> _Files:
    """The files once none of them is being written any more. NotReadyError after a minute."""
    for _attempt in range(30):
        files = _files(folder)
        if time.time_ns() - max((changed for _size, changed in files.values()), default=0) > _SETTLED_NS:
            return files
        time.sleep(2)
    raise NotReadyError("the rank still compiles", where=str(folder))


def _files(folder: Path) -> _Files:
    """Size and time of each regular file below `folder`; what engines lock with is left out."""
    found = {}
    for root, _folders, names in os.walk(folder):
        for name in names:
            seen = (Path(root) / name).lstat()
            if stat.S_ISREG(seen.st_mode) and not name.endswith(".lock"):
                path = (Path(root) / name).relative_to(folder).as_posix()
                found[path] = (seen.st_size, seen.st_mtime_ns)
    return found


def _write(file: IO[bytes], folder: Path, names: _Files, progress: WeightsProgress) -> None:
    """An archive as the bytes of one tensor, since weights are what nodes bring to each other."""
    header_bytes = 128
    file.seek(header_bytes)
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name, (size, _time) in sorted(names.items()):
            # The container could have put a link there that leads out of the folder.
            with open_contained(folder, name) as content:
                archive.addfile(archive.gettarinfo(arcname=name, fileobj=content), content)
            progress.add(size)
    length = file.tell() - header_bytes
    header = json.dumps({"archive": {"dtype": "U8", "shape": [length], "data_offsets": [0, length]}})
    file.seek(0)
    file.write((header_bytes - 8).to_bytes(8, "little") + header.encode().ljust(header_bytes - 8))
