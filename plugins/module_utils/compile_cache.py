"""Where a node keeps what engines compile, and what a container has of it (Python 3.8 or newer).

FOLDER/GROUP-RANK holds what rank RANK of a start compiled; GROUP stands for image, arguments and GPU.
FOLDER/live/NAME is what the container NAME writes.
"""

from __future__ import annotations

import shutil
import typing as t
from pathlib import Path

FOLDER = "/var/lib/headfirst/compile-cache"
# In the container.
KEPT, LIVE = "/var/cache/headfirst/kept", "/var/cache/headfirst/live"
OPTIONS: t.Dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "environment": {"type": "dict", "required": True},
    "program": {"type": "dict", "required": True},
}
Cache = t.Dict[str, t.Any]


def folders(cache: Cache, container: str) -> t.Dict[str, str]:
    """The folders on the node to their places in a container, whose name may end with a generation."""
    live = "{}/live/{}".format(FOLDER, container.partition(".")[0])
    return {"{}/{}".format(FOLDER, cache["name"]): KEPT + ":ro", live: LIVE}


def create(cache: Cache, container: str) -> None:
    """Create the folders, which only root reads."""
    for folder in (FOLDER, *folders(cache, container)):
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)


def added(spec: t.Dict[str, t.Any], cache: Cache, container: str) -> t.Dict[str, t.Any]:
    """The spec of a container that starts with what was compiled before."""
    ((program, text),) = cache["program"].items()
    words = [program, *([spec["entrypoint"]] if spec.get("entrypoint") else []), *spec["command"]]
    mounts = [":".join(pair) for pair in folders(cache, container).items()]
    return {
        **spec,
        "entrypoint": "python3" if spec.get("entrypoint") else None,
        "command": words if spec.get("entrypoint") else ["python3", *words],
        "environment": {**cache["environment"], **spec["environment"]},
        "volumes": [*spec["volumes"], *mounts, "{0}:{0}:ro".format(program)],
        "files": {**spec["files"], program: text},
    }


def group(name: str) -> str:
    """The folders of all ranks of a start, as a pattern, from the name of one of them."""
    return name.rpartition("-")[0] + "-*"


def mounted(descriptions: t.Iterable[t.Dict[str, t.Any]]) -> t.Set[str]:
    """The folders of containers that Docker describes so, as patterns: GROUP-*, and live/NAME."""
    mounts = [Path(mount.get("Source") or "") for each in descriptions for mount in each.get("Mounts") or []]
    below = [mount.relative_to(FOLDER) for mount in mounts if Path(FOLDER) in mount.parents]
    return {str(path) if path.parent.name else group(path.name) for path in below}


def remove(patterns: t.Set[str]) -> None:
    """Remove the folders."""
    for pattern in patterns:
        for path in Path(FOLDER).glob(pattern):
            shutil.rmtree(str(path))
