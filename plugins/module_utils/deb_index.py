"""The entry of a package in the index of an apt repository. Python 3.8+."""

from __future__ import annotations

import hashlib
import os
import subprocess


def stanza(path: str, name: str) -> str:
    """The entry of the package in `path`, named so beside the index. CalledProcessError for none."""
    control = subprocess.run(
        ["dpkg-deb", "--field", path], stdout=subprocess.PIPE, universal_newlines=True, check=True
    )
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    place = f"Filename: ./{name}\nSize: {os.path.getsize(path)}\nSHA256: {digest.hexdigest()}"
    return f"{control.stdout.strip()}\n{place}\n"
