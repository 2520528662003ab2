"""Fixture: a machine of tests/unit/data/hosts as a tree of files, for bind mounts over /sys and /proc.

Usage: machine.py FILES_TXT FOLDER
Links in the tree lead into the tree.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Unpack; see the README beside the machines for the format."""
    folder = Path(sys.argv[2])
    for line in Path(sys.argv[1]).read_text().splitlines():
        path, _, target = line.partition(" -> ")
        if not target:
            path, _, text = line.partition(" =")
        file = folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        if target:
            file.symlink_to(f"{folder}{target}")
        elif not text.startswith(" hex:"):
            file.write_text(text.removeprefix(" ").replace("\\n", "\n") + "\n")


if __name__ == "__main__":
    main()
