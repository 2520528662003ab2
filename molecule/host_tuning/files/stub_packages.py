"""Fixture: packages without content in a repository of their own, to see which of them are upgraded.

Usage: stub_packages.py FOLDER NAME...
Writes versions 1 and 2 of every package as .deb files; only version 2 is in the repository's list.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

CONTROL = """\
Package: {name}
Version: {version}
Architecture: all
Maintainer: Nobody <nobody@example.org>
Description: Stub
"""


def build(folder: Path, name: str, version: str) -> str:
    """Make one package; return its paragraph in the repository's list."""
    control = CONTROL.format(name=name, version=version)
    root = folder / f"{name}-{version}"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN" / "control").write_text(control)
    file = folder / f"{name}_{version}_all.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", str(root), str(file)], check=True)
    data = file.read_bytes()
    return (
        f"{control}Filename: ./{file.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
    )


def main() -> None:
    """Make all packages and the repository's files."""
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        build(folder, name, "1")
    listed = "\n".join(build(folder, name, "2") for name in sys.argv[2:]).encode()
    (folder / "Packages").write_bytes(listed)
    digest = f" {hashlib.sha256(listed).hexdigest()} {len(listed)} Packages"
    (folder / "Release").write_text(
        f"Origin: Stub\nLabel: Stub\nSuite: stub\nCodename: stub\nSHA256:\n{digest}\n"
    )


if __name__ == "__main__":
    main()
