"""The tarball of the collection, the same bytes for the same files."""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
import tarfile
from io import BytesIO
from pathlib import Path

from headfirst.control.images.commands import run

from releasing import HINT


def build(source: Path, folder: Path, epoch: int) -> Path:
    """Build the collection in `source` into `folder`; all files in it are of the time `epoch`."""
    argv = [sys.executable, "-m", "ansible", "galaxy", "collection", "build", "--output-path", str(folder)]
    run([*argv, str(source)], doing="Building the collection", hint=HINT)
    (built,) = folder.glob("*.tar.gz")
    _normalise(built, epoch)
    return built


def _normalise(path: Path, epoch: int) -> None:
    """ansible-galaxy writes the present time, and files in the order in which the file system lists them."""
    with tarfile.open(path) as archive:
        members = {member.name: member for member in archive}
        content = {
            name: file.read() for name, member in members.items() if (file := archive.extractfile(member))
        }
    files = json.loads(content["FILES.json"])
    files["files"].sort(key=lambda entry: entry["name"])
    content["FILES.json"] = json.dumps(files, indent=True).encode()
    manifest = json.loads(content["MANIFEST.json"])
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(content["FILES.json"]).hexdigest()
    content["MANIFEST.json"] = json.dumps(manifest, indent=True).encode()
    with (
        path.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name in [
            "MANIFEST.json",
            "FILES.json",
            *(entry["name"] for entry in files["files"] if entry["name"] != "."),
        ]:
            member = members[name]
            member.mtime = epoch
            member.size = len(content.get(name, b""))
            archive.addfile(member, BytesIO(content.get(name, b"")))
