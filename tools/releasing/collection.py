"""The tarball of the collection, the same bytes for the same files."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from headfirst.control.machine.commands import run

from releasing import HINT


def build(source: Path, folder: Path, epoch: int) -> Path:
    """Build the collection in `source` into `folder`; all files in it are of the time `epoch`."""
    argv = [sys.executable, "-m", "ansible", "galaxy", "collection", "build", "--output-path", str(folder)]
    with tempfile.TemporaryDirectory(prefix="headfirst-") as temporary:
        files = shutil.copytree(source, Path(temporary) / "files", symlinks=True)
        # Ansible Galaxy shows README.md alone, whatever galaxy.yml names.
        (files / "COLLECTION.md").replace(files / "README.md")
        settings = files / "galaxy.yml"
        text = settings.read_text("utf-8").replace("  - README.md\n", "")
        settings.write_text(text.replace("readme: COLLECTION.md", "readme: README.md"), "utf-8")
        run([*argv, str(files)], doing="Building the collection", hint=HINT)
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
