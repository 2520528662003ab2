"""An image of Debian packages alone, where no registry can be reached."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from headfirst.control.images import archive, rootfs, store
from headfirst.control.images.archive import ImageArchive
from headfirst.control.images.recipe import Progress

_STEPS = 2


@dataclass(frozen=True)
class DebianRecipe:
    """An image: its name and tag, and the packages that Debian 12 gets besides its essential ones."""

    name: str
    tag: str
    packages: Sequence[str]
    left_out: Sequence[str] = ()  # patterns of the packages' files
    user: str = ""  # that programs run as; "" for root

    def build(self, cache: Path, progress: Progress) -> ImageArchive:
        """The image's archive in the folder `cache`, made where it is missing; takes 20–60 s.

        Raises NotReadyError with the last lines of the program that failed.
        """
        key = store.recipe_key()

        def make(target: Path, scratch: Path) -> None:
            progress(0, _STEPS, "making the Debian root (usually 20–60 s)")
            root = scratch / "root.tar"
            rootfs.make(self.packages, root, scratch, self.left_out)
            progress(1, _STEPS, "writing the archive")

            def debian(out: IO[bytes]) -> None:
                with root.open("rb") as file:
                    shutil.copyfileobj(file, out)

            config = {"Labels": {"headfirst.recipe": key}, **({"User": self.user} if self.user else {})}
            archive.write(target, self.tag, {"Debian 12": debian}, config)

        path = store.kept(cache, self.name, key, ".tar", make)
        progress(_STEPS, _STEPS, "ready")
        return ImageArchive(path=path, image_id=archive.image_id(path), tag=self.tag)
