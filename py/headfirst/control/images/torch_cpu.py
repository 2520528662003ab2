"""torch without CUDA in a folder of packages, for the images of engines that run on CPUs."""

from __future__ import annotations

from pathlib import Path

from headfirst.common.errors import NotReadyError
from headfirst.control.images import site

LOCK = Path(__file__).with_name("torch-cpu.lock")
LEFT_OUT = (
    "torch/bin/test_*",
    "torch/bin/*Test",
    "torch/bin/protoc*",
    "torch/include/*",  # to compile extensions
    "torch/test/*",
)
"""Patterns (fnmatch) of torch's files that no server reads."""


def install(packages: Path, downloads: Path, report: site.Report) -> None:
    """Install torch's CPU build into the folder `packages`; NotReadyError where no index has it."""
    try:
        site.install(LOCK, packages, downloads, report)
    except NotReadyError:
        # The usual index has CUDA builds only, which the lock refuses; uv has an index of CPU builds.
        try:
            site.install(LOCK, packages, downloads, report, "--torch-backend=cpu")
        except NotReadyError as error:
            raise NotReadyError(
                error.what,
                hint="Name an index with torch's CPU build, as in `PIP_EXTRA_INDEX_URL=URL deploy up …`.",
            ) from None
