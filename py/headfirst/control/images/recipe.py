"""What the images built here have in common: a Debian root below, Python packages above, then one archive."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from headfirst.control.images import archive, bytecode, layer, rootfs, site, store
from headfirst.control.images.archive import ImageArchive

PREFIX = "/opt/site"
_STEPS = 4
_COPY_BYTES = 1 << 20
# Seen on two cores and 100 Mbit/s to 1 Gbit/s.
_DOWNLOAD_TIME = "(usually 1–3 min)"
_ROOT_TIME = "(usually 30–60 s)"
_COMPILE_TIME = "(usually 20–60 s)"
_WRITE_TIME = "(usually 10–30 s)"

Progress = Callable[[int, int, str], None]
"""Called as a build advances: steps done, steps in all, what is being done now."""


@dataclass(frozen=True)
class Recipe:
    """An image: its name and tag, the data files it is made of, and what is its own.

    `install(site, downloads, report)` fills the folder of packages; `left_out` are patterns (fnmatch) of
    files in it that no server reads; `uncompiled` is a regular expression of paths that no server imports.
    """

    name: str
    tag: str
    data: Sequence[Path]
    install: Callable[[Path, Path, site.Report], None]
    env: Mapping[str, str]
    left_out: Sequence[str]
    uncompiled: str

    def build(self, cache: Path, progress: Progress) -> ImageArchive:
        """The image's archive in the folder `cache`, made where it is missing or its recipe has changed.

        Raises NotReadyError with the last lines of the program that failed.
        """
        key = store.recipe_key(*self.data)

        def make(target: Path, scratch: Path) -> None:
            self._make(key, cache, target, scratch, progress)

        path = store.kept(cache, self.name, key, ".tar", make)
        progress(_STEPS, _STEPS, "ready")
        return ImageArchive(path=path, image_id=archive.image_id(path), tag=self.tag)

    def _make(self, key: str, cache: Path, target: Path, scratch: Path, progress: Progress) -> None:
        packages, downloads = scratch / "site", cache / f".{self.name}-downloads"

        def installed(count: int, wanted: int) -> None:
            progress(0, _STEPS, f"downloading Python packages, {count} of {wanted} {_DOWNLOAD_TIME}")

        progress(0, _STEPS, f"downloading Python packages {_DOWNLOAD_TIME}")
        with ThreadPoolExecutor(1) as pool:
            making = pool.submit(rootfs.layer_file, cache)
            self.install(packages, downloads, installed)
            progress(1, _STEPS, f"making the Debian root {_ROOT_TIME}")
            root = making.result()
        progress(2, _STEPS, f"compiling Python packages {_COMPILE_TIME}")
        bytecode.compile_site(root, packages, PREFIX, scratch, self.uncompiled)
        progress(3, _STEPS, f"writing the archive {_WRITE_TIME}")

        def debian(out: IO[bytes]) -> None:
            with root.open("rb") as file:
                shutil.copyfileobj(file, out, _COPY_BYTES)

        def python(out: IO[bytes]) -> None:
            layer.write(out, site.members(packages, PREFIX.lstrip("/"), self.left_out))

        config = {
            "Env": [f"{name}={value}" for name, value in sorted(self.env.items())],
            "Labels": {"headfirst.recipe": key},
        }
        archive.write(target, self.tag, {"Debian 12": debian, "Python packages": python}, config)
        shutil.rmtree(downloads)
