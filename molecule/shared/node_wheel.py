"""Build the node tools' wheel, and a wheelhouse with all that it needs on this machine's kind of node.

Usage: node_wheel.py FOLDER
Writes FOLDER/wheel/*.whl and FOLDER/wheelhouse/*.whl for the Python of Debian 12.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from headfirst.run.node_wheel import build_node_wheel


def main() -> None:
    """Carry out the command; a wheelhouse that is there is kept."""
    folder = Path(sys.argv[1])
    wheel = build_node_wheel(folder / "wheel")
    for other in wheel.parent.glob("*.whl"):
        if other != wheel:
            other.unlink()
    wheelhouse = folder / "wheelhouse"
    if not any(wheelhouse.glob("numpy*")):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        target = ["--only-binary", ":all:", "--python-version", "3.11"]
        subprocess.run([*pip, "--dest", str(wheelhouse), *target, str(wheel)], check=True)


if __name__ == "__main__":
    main()
