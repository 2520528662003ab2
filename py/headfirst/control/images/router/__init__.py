"""The router as an image, made from smg's PyPI package.

In a folder of its own: a change here gives no other image another recipe.
"""

from __future__ import annotations

from pathlib import Path

from headfirst.control.images import site
from headfirst.control.images.archive import ImageArchive
from headfirst.control.images.recipe import PREFIX, Progress, Recipe

_LOCK = Path(__file__).parent / "packages.lock"


def build(cache: Path, progress: Progress) -> ImageArchive:
    """The router's image archive in the folder `cache`; see Recipe.build."""
    return _RECIPE.build(cache, progress)


def _install(packages: Path, downloads: Path, report: site.Report) -> None:
    site.install(_LOCK, packages, downloads, report)


_RECIPE = Recipe(
    name="smg",
    tag="headfirst/smg:1.13.0",
    data=(_LOCK, Path(__file__)),
    install=_install,
    env={"PYTHONPATH": PREFIX},
    left_out=("*/sboms/*",),
    uncompiled=r"/tests?/",
)
