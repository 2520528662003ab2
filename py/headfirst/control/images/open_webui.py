"""Open WebUI as an image, made from its PyPI package without torch: embedding and speech models stay out."""

from __future__ import annotations

from pathlib import Path

from headfirst.control.images import site
from headfirst.control.images.archive import ImageArchive
from headfirst.control.images.recipe import PREFIX, Progress, Recipe

_HERE = Path(__file__).parent
_LOCK, _FILES = _HERE / "open-webui.lock", _HERE / "webui_files"


def build(cache: Path, progress: Progress) -> ImageArchive:
    """The chat page's image archive in the folder `cache`; see Recipe.build."""
    return RECIPE.build(cache, progress)


def _install(packages: Path, downloads: Path, report: site.Report) -> None:
    site.install(_LOCK, packages, downloads, report)
    site.add(_FILES, packages)


RECIPE = Recipe(
    name="open-webui",
    tag="headfirst/open-webui:0.12.4",
    data=(_LOCK, _FILES),
    install=_install,
    env={
        "PYTHONPATH": PREFIX,
        "PATH": f"{PREFIX}/commands:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "USE_SLIM_DOCKER": "true",  # what the image is: without it the server imports torch
    },
    left_out=("*/tests/*", "*.map"),  # maps are for the debugger of a browser
    uncompiled=r"/(tests?|azure|black|pygments/lexers|sqlalchemy/testing|wcwidth/table_grapheme_overrides)/",
)
