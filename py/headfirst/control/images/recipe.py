"""What the images built here have in common: a Debian root below, Python packages above, then one archive."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from headfirst.control.images import archive, bytecode, layer, rootfs, site, store, torch_cpu
from headfirst.control.images.archive import ImageArchive
from headfirst.decide.containers.image import PREFIX, ImageRecipe

_STEPS = 4
_COPY_BYTES = 1 << 20
# Seen on two cores and 100 Mbit/s to 1 Gbit/s.
_DOWNLOAD_TIME = "(usually 1–3 min)"
_ROOT_TIME = "(usually 30–60 s)"
_COMPILE_TIME = "(usually 20–60 s)"
_WRITE_TIME = "(usually 10–30 s)"

Progress = Callable[[int, int, str], None]
"""Called as a build advances: steps done, steps in all, what is being done now."""


def build(recipe: ImageRecipe, cache: Path, progress: Progress) -> ImageArchive:
    """The image's archive in the folder `cache`, made where it is missing or its recipe has changed.

    Raises NotReadyError with the last lines of the program that failed.
    """
    key = recipe_key(recipe)

    def make(target: Path, scratch: Path) -> None:
        _make(recipe, key, cache, target, scratch, progress)

    path = store.kept(cache, recipe.name, key, ".tar", make)
    progress(_STEPS, _STEPS, "ready")
    return ImageArchive(path=path, image_id=archive.image_id(path), tag=recipe.tag)


def recipe_key(recipe: ImageRecipe) -> str:
    """Changes with the recipe, with its files, and with the code that builds images."""
    data = [recipe.lock, *([torch_cpu.LOCK] if recipe.torch_cpu else []), recipe.files]
    settings = (recipe.tag, sorted(recipe.env.items()), recipe.left_out, recipe.uncompiled)
    return store.recipe_key(*filter(None, data), settings=repr(settings))


def _make(
    recipe: ImageRecipe, key: str, cache: Path, target: Path, scratch: Path, progress: Progress
) -> None:
    packages, downloads = scratch / "site", cache / f".{recipe.name}-downloads"

    def installed(count: int, wanted: int) -> None:
        progress(0, _STEPS, f"downloading Python packages, {count} of {wanted} {_DOWNLOAD_TIME}")

    progress(0, _STEPS, f"downloading Python packages {_DOWNLOAD_TIME}")
    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(rootfs.layer_file, cache)
        site.install(recipe.lock, packages, downloads, installed)
        if recipe.torch_cpu:
            torch_cpu.install(packages, downloads, installed)
        if recipe.files is not None:
            site.add(recipe.files, packages)
        progress(1, _STEPS, f"making the Debian root {_ROOT_TIME}")
        root = making.result()
    progress(2, _STEPS, f"compiling Python packages {_COMPILE_TIME}")
    bytecode.compile_site(root, packages, PREFIX, scratch, recipe.uncompiled)
    progress(3, _STEPS, f"writing the archive {_WRITE_TIME}")
    left_out = (*recipe.left_out, *(torch_cpu.LEFT_OUT if recipe.torch_cpu else ()))

    def debian(out: IO[bytes]) -> None:
        with root.open("rb") as file:
            shutil.copyfileobj(file, out, _COPY_BYTES)

    def python(out: IO[bytes]) -> None:
        layer.write(out, site.members(packages, PREFIX.lstrip("/"), left_out))

    config = {
        "Env": [f"{name}={value}" for name, value in sorted(recipe.env.items())],
        "Labels": {"headfirst.recipe": key},
    }
    archive.write(target, recipe.tag, {"Debian 12": debian, "Python packages": python}, config)
    shutil.rmtree(downloads)
