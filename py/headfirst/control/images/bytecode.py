"""Bytecode made at build time: else every process of every rank compiles 5,000 modules when it starts.

It is made by the image's own Python, run in place by the image's own loader: no chroot, no root, and the
controller's Python may be another version.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headfirst.control.images import commands

_LIBRARIES = "usr/lib/x86_64-linux-gnu"


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
