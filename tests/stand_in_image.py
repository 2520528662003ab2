"""The image of the stand-in engine."""

from __future__ import annotations

import tarfile
from pathlib import Path


def write_image(path: Path) -> None:
    """An image of links alone: Python and its libraries come from the node, by a mount of /usr."""
    with tarfile.open(path, "w") as tar:
        for name in ("bin", "lib", "lib64"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
        for name in ("usr", "sbin", "tmp", "srv/headfirst", "etc/headfirst"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
