"""Fixture: a signed apt repository of stub packages, made on the node.

Usage: apt_repository.py PACKAGES_JSON FOLDER KEY_FILE
PACKAGES_JSON lists {name, version} and, where there are any, depends and files (path to text; those in bin/
are programs). FOLDER gets the packages and their index; KEY_FILE gets the key, made for this run, and
KEY_FILE.fingerprint its fingerprint. Needs gpg.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def call(*argv: str) -> str:
    """A command's output."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def package(folder: Path, wanted: dict[str, Any]) -> None:
    """Build one .deb."""
    name, version = wanted["name"], wanted["version"]
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        root.chmod(0o755)
        for path, text in wanted.get("files", {}).items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(0o755 if "bin/" in path else 0o644)
        fields = {"Package": name, "Version": version, "Architecture": "amd64", "Maintainer": "Fixture"}
        fields |= {"Depends": wanted["depends"]} if "depends" in wanted else {}
        fields["Description"] = f"stub of {name}"
        control = root / "DEBIAN" / "control"
        control.parent.mkdir()
        control.write_text("".join(f"{key}: {value}\n" for key, value in fields.items()))
        call("dpkg-deb", "--build", "-Znone", str(root), str(folder / f"{name}_{version}_amd64.deb"))


def index(folder: Path) -> str:
    """The text of Packages."""
    text = ""
    for deb in sorted(folder.glob("*.deb")):
        data = deb.read_bytes()
        text += f"{call('dpkg-deb', '--field', str(deb))}Filename: ./{deb.name}\nSize: {len(data)}\n"
        text += f"SHA256: {hashlib.sha256(data).hexdigest()}\n\n"
    return text


def sign(folder: Path, key_file: Path) -> None:
    """Write InRelease, signed by a key that only this run knows."""
    with tempfile.TemporaryDirectory() as keys:
        gpg = ["gpg", "--homedir", keys, "--batch", "--yes", "--quiet"]
        call(*gpg, "--passphrase", "", "--quick-gen-key", "fixture", "ed25519", "sign")
        signed = str(folder / "InRelease")
        call(*gpg, "--digest-algo", "SHA512", "--output", signed, "--clearsign", str(folder / "Release"))
        key_file.write_text(call(*gpg, "--armor", "--export"))
        lines = call(*gpg, "--with-colons", "--fingerprint").splitlines()
        fingerprint = next(line.split(":")[9] for line in lines if line.startswith("fpr"))
        Path(f"{key_file}.fingerprint").write_text(fingerprint)
        call("gpgconf", "--homedir", keys, "--kill", "all")


def main() -> None:
    """Build, list and sign."""
    packages, folder, key_file = (Path(argument) for argument in sys.argv[1:4])
    folder.mkdir(parents=True, exist_ok=True)
    for wanted in json.loads(packages.read_text()):
        package(folder, wanted)
    text = index(folder)
    (folder / "Packages").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (folder / "Release").write_text(f"Origin: Fixture\nSHA256:\n {digest} {len(text.encode())} Packages\n")
    sign(folder, key_file)


if __name__ == "__main__":
    main()
