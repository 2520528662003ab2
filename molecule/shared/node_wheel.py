"""Build the node tools' wheel, and a wheelhouse with all that it needs on this machine's kind of node.

Usage: node_wheel.py FOLDER
Writes FOLDER/wheel/*.whl and FOLDER/wheelhouse/*.whl for the Python of Debian 12.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.plugin_utils.node_wheel import build_node_wheel


def main() -> None:
    """Carry out the command; a wheelhouse that is there is kept."""
    folder = Path(sys.argv[1])
    wheel = build_node_wheel(folder / "wheel")
    stem = wheel.name.removesuffix("-py3-none-any.whl")
    for other in wheel.parent.iterdir():
        if not other.name.startswith(stem):
            other.unlink()
    wheelhouse = folder / "wheelhouse"
    if not any(wheelhouse.glob("numpy*")):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        target = ["--only-binary", ":all:", "--python-version", "3.11", "--require-hashes"]
        argv = [*pip, "--dest", str(wheelhouse.absolute()), *target, "--requirement", f"{stem}.base.txt"]
        settings = os.environ | {"PIP_CONSTRAINT": os.devnull}
        subprocess.run(argv, cwd=wheel.parent, env=settings, check=True)


if __name__ == "__main__":
    main()
