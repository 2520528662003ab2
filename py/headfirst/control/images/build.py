"""Builds images: a Debian root, for an ImageRecipe Python packages above it, then one archive.

Bytecode is made at build time: else every process of every rank compiles 5,000 modules when it starts. It is
made by the image's own Python, run in place by the image's own loader: no chroot, no root, and the
controller's Python may be another version.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from headfirst.common.errors import NotReadyError
from headfirst.control.images import archive, rootfs, site, store
from headfirst.control.images.archive import ImageArchive
from headfirst.control.machine import commands
from headfirst.control.machine.packages import Advance
from headfirst.decide.containers.image import PREFIX, ImageRecipe

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
TORCH_LOCK = Path(__file__).with_name("torch-cpu.lock")
# Patterns (fnmatch) of torch's files that no server reads.
_TORCH_LEFT_OUT = (
    "torch/bin/test_*",
    "torch/bin/*Test",
    "torch/bin/protoc*",
    "torch/include/*",  # to compile extensions
    "torch/test/*",
)
_STEPS = 4
_COPY_BYTES = 1 << 20
# Seen on two cores and 100 Mbit/s to 1 Gbit/s.
_DOWNLOAD_TIME = "(usually 1–3 min)"
_ROOT_TIME = "(usually 30–60 s)"
_COMPILE_TIME = "(usually 20–60 s)"
_WRITE_TIME = "(usually 10–30 s)"


@dataclass(frozen=True)
class DebianRecipe:
    """An image of Debian packages alone, where no registry can be reached.

    `packages` are those that Debian 12 gets besides its essential ones, `left_out` patterns of their files;
    `user` is what programs run as, "" for root.
    """

    name: str
    tag: str
    packages: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    user: str = ""


def build(recipe: ImageRecipe | DebianRecipe, cache: Path, progress: Advance) -> ImageArchive:
    """The image's archive in the folder `cache`, made where it is missing or its recipe has changed.

    Raises NotReadyError with the last lines of the program that failed.
    """
    key = recipe_key(recipe)

    def make(target: Path, scratch: Path) -> None:
        if isinstance(recipe, DebianRecipe):
            _make_debian(recipe, key, target, scratch, progress)
        else:
            _make(recipe, key, cache, target, scratch, progress)

    path = store.built(cache, recipe.name, key, ".tar", make)
    progress("ready", _STEPS, _STEPS)
    return ImageArchive(path=path, image_id=archive.image_id(path), tag=recipe.tag)


def recipe_key(recipe: ImageRecipe | DebianRecipe) -> str:
    """Changes with the recipe, with its files, and with the code that builds images."""
    if isinstance(recipe, DebianRecipe):
        return store.recipe_key(settings=repr(recipe))
    data = [recipe.lock, *([TORCH_LOCK] if recipe.torch_cpu else []), recipe.files]
    settings = (recipe.tag, sorted(recipe.env.items()), recipe.left_out, recipe.uncompiled)
    return store.recipe_key(*filter(None, data), settings=repr(settings))


def _make_debian(recipe: DebianRecipe, key: str, target: Path, scratch: Path, progress: Advance) -> None:
    progress(f"making the Debian root {_ROOT_TIME}", 0, _STEPS)
    root = scratch / "root.tar"
    rootfs.make(recipe.packages, root, scratch, recipe.left_out)
    progress(f"writing the archive {_WRITE_TIME}", 3, _STEPS)
    config = {"Labels": {"headfirst.recipe": key}, **({"User": recipe.user} if recipe.user else {})}
    archive.write(target, recipe.tag, {"Debian 12": partial(_copy, root)}, config)


def _make(recipe: ImageRecipe, key: str, cache: Path, target: Path, scratch: Path, progress: Advance) -> None:
    packages, downloads = scratch / "site", cache / f".{recipe.name}-downloads"

    def installed(count: int, total: int) -> None:
        progress(f"downloading Python packages, {count} of {total} {_DOWNLOAD_TIME}", 0, _STEPS)

    progress(f"downloading Python packages {_DOWNLOAD_TIME}", 0, _STEPS)
    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(rootfs.layer_file, cache)
        site.install(recipe.lock, packages, downloads, installed)
        if recipe.torch_cpu:
            install_torch(packages, downloads, installed)
        if recipe.files is not None:
            site.add(recipe.files, packages)
        progress(f"making the Debian root {_ROOT_TIME}", 1, _STEPS)
        root = making.result()
    progress(f"compiling Python packages {_COMPILE_TIME}", 2, _STEPS)
    compile_site(root, packages, PREFIX, scratch, recipe.uncompiled)
    progress(f"writing the archive {_WRITE_TIME}", 3, _STEPS)
    left_out = (*recipe.left_out, *(_TORCH_LEFT_OUT if recipe.torch_cpu else ()))

    def python(out: IO[bytes]) -> None:
        archive.write_layer(out, site.members(packages, PREFIX.lstrip("/"), left_out))

    config = {
        "Env": [f"{name}={value}" for name, value in sorted(recipe.env.items())],
        "Labels": {"headfirst.recipe": key},
    }
    archive.write(target, recipe.tag, {"Debian 12": partial(_copy, root), "Python packages": python}, config)
    shutil.rmtree(downloads)


def _copy(root: Path, out: IO[bytes]) -> None:
    with root.open("rb") as file:
        shutil.copyfileobj(file, out, _COPY_BYTES)


def install_torch(packages: Path, downloads: Path, report: site.Report) -> None:
    """Install torch's CPU build into the folder `packages`; NotReadyError where no index has it."""
    try:
        site.install(TORCH_LOCK, packages, downloads, report)
    except NotReadyError:
        # The usual index has CUDA builds only, which the lock refuses; uv has an index of CPU builds.
        try:
            site.install(TORCH_LOCK, packages, downloads, report, "--torch-backend=cpu")
        except NotReadyError as error:
            raise NotReadyError(
                error.what,
                hint="Name an index with torch's CPU build, as in `PIP_EXTRA_INDEX_URL=URL deploy up …`.",
            ) from None


def compile_site(layer: Path, site: Path, prefix: str, scratch: Path, skipped: str) -> None:
    """Writes `__pycache__` folders in `site`, which the image has at `prefix`.

    `layer` is the root's tar archive; paths that match the regular expression `skipped` are passed over.
    Raises NotReadyError with the last lines of the compiler.
    """
    root = scratch / "root"
    root.mkdir()
    hint = f"Remove {layer} and repeat the command: it is then made again."
    unpack = ["tar", "-xf", str(layer), "-C", str(root), "--no-same-owner", "./usr/bin", "./usr/lib"]
    commands.run(unpack, doing="Unpacking the image's Python", hint=hint)
    commands.run(
        [
            *(*_python(root), "-m", "compileall", "-q", f"-j{os.cpu_count()}", "-x", skipped),
            # The hash of the source, never checked: a layer's file times do not matter then.
            *("--invalidation-mode=unchecked-hash", "-s", str(site), "-p", prefix, str(site)),
        ],
        doing="Compiling the image's Python packages",
        hint=hint,
        # A fixed seed: the order of sets is written into the bytecode.
        env={"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0", "PATH": os.defpath},
    )


def _python(root: Path) -> Sequence[str]:
    libraries = root / _LIBRARIES
    loader = libraries / "ld-linux-x86-64.so.2"
    return (str(loader), "--library-path", str(libraries), str(root / "usr/bin/python3.11"))
