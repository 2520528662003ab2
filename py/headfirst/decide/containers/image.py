"""Images of Python packages that the controller builds, as data; headfirst.control.images builds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "/opt/site"
"""Where an image has its Python packages."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The variable PATH of an image without programs in its packages."""


@dataclass(frozen=True)
class ImageRecipe:
    """Debian 12 below, the packages of `lock` above.

    `torch_cpu`: torch's CPU build is installed after them. `files` is a folder that is copied over the
    packages. `left_out` are patterns (fnmatch) of the packages' files that no server reads; `uncompiled` is a
    regular expression of paths that no server imports.
    """

    name: str
    tag: str
    lock: Path
    env: Mapping[str, str]
    left_out: tuple[str, ...]
    uncompiled: str
    torch_cpu: bool = False
    files: Path | None = None
