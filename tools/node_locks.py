"""Writes py/headfirst/node/locks/*.lock: the node tools' packages, exact versions with hashes.

Usage: python tools/node_locks.py
uv reads its own settings here, not pip's, whose folders of wheels may hold those of one Python alone.
One resolution for all Pythons and platforms that nodes have; base.lock is what every node gets, the others
hold what a hub's client needs besides. The hashes are those of wheels that a node can install.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.plugin_utils.node_wheel import (
    LOCKS,
    MIN_PYTHON,
    requirements,
)
from lock_hashes import of_wheels_for, packages, universal

HEADER = "# Packages of the node tools. Made by tools/node_locks.py; do not edit.\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        everything = Path(folder) / "all.txt"
        everything.write_text(_resolved(line for name in LOCKS for line in requirements(name)))
        same = f"--constraint={everything}"
        base = packages(_resolved(requirements("base"), same))
        for name, path in LOCKS.items():
            pinned = base
            if name != "base":
                both = packages(_resolved([*requirements("base"), *requirements(name)], same))
                pinned = [package for package in both if package not in base]
            path.parent.mkdir(exist_ok=True)
            path.write_text(HEADER + of_wheels_for(("manylinux",), MIN_PYTHON, "".join(pinned)))


def _resolved(lines: Iterable[str], *extra: str) -> str:
    return universal("\n".join(lines), MIN_PYTHON, "--only-binary=:all:", *extra)


if __name__ == "__main__":
    main()
