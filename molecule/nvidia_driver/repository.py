"""Fixture: a signed apt repository of stub packages with the names and versions of NVIDIA's.

Usage: repository.py FILES FOLDER KERNEL first|second|closed
Runs on the node. FOLDER becomes what https://developer.download.nvidia.com/compute/cuda/repos is; its key is
made the first time, and FOLDER/fingerprint tells which one it is. "second" adds a late fabric manager.
With "closed" FOLDER is what lies ready in a closed network: an installer, and packages to go with it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

OLD, NEW, NEXT = "580.126.20", "580.159.03", "590.48.01"
UNIT = "lib/systemd/system/nvidia-fabricmanager.service"
BUILD = "/usr/local/sbin/dkms autoinstall\n"


def package(
    folder: Path, name: str, version: str, files: dict[str, str], depends: str = "", postinst: str = ""
) -> None:
    """Build one .deb; `files` maps paths to texts, and those in bin/ are programs."""
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        root.chmod(0o755)
        for path, text in files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(0o755 if "bin/" in path else 0o644)
        control = root / "DEBIAN"
        control.mkdir()
        text = f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: A <a@b.example>\n"
        text += f"Depends: {depends}\n" if depends else ""
        (control / "control").write_text(f"{text}Description: stub of {name}\n")
        if postinst:
            (control / "postinst").write_text(f"#!/bin/sh\nset -e\n{postinst}")
            (control / "postinst").chmod(0o755)
        out = folder / f"{name}_{version}_amd64.deb"
        subprocess.run(
            ["dpkg-deb", "--build", "-Znone", str(root), str(out)], check=True, capture_output=True
        )


def driver(folder: Path, stubs: Path, version: str) -> None:
    """The packages of a driver. As NVIDIA's do, they ask for this version or any newer one."""
    smi = (stubs / "nvidia-smi").read_text().replace("VERSION", version)
    daemon = (stubs / "nvidia-persistenced").read_text()
    source = f"usr/src/nvidia-{version}/dkms.conf"
    package(folder, "nvidia-kernel-open-dkms", f"{version}-1", {source: version}, postinst=BUILD)
    package(folder, "nvidia-persistenced", f"{version}-1", {"usr/bin/nvidia-persistenced": daemon})
    needs = f"nvidia-kernel-open-dkms (>= {version}), nvidia-persistenced (>= {version})"
    package(folder, "nvidia-driver-cuda", f"{version}-1", {"usr/bin/nvidia-smi": smi}, needs)


def manager(folder: Path, stubs: Path, name: str, version: str) -> None:
    """A fabric manager of a version, under a name that may promise another."""
    program = (stubs / "nv-fabricmanager").read_text().replace("VERSION", version)
    files = {"usr/bin/nv-fabricmanager": program, UNIT: (stubs / "nvidia-fabricmanager.service").read_text()}
    package(folder, name, f"{version}-1", files, postinst="systemctl daemon-reload\n")


def closed(folder: Path, stubs: Path) -> None:
    """A .run installer, which does as the packages do, and the packages it does not replace."""
    smi = (stubs / "nvidia-smi").read_text().replace("VERSION", OLD)
    programs = {"nvidia-smi": smi, "nvidia-persistenced": (stubs / "nvidia-persistenced").read_text()}
    lines = ["#!/bin/sh", "set -eu", 'echo "$@" >/var/lib/fixture/installer-arguments']
    lines += [f"mkdir -p /usr/src/nvidia-{OLD}", "/usr/local/sbin/dkms autoinstall"]
    for name, text in programs.items():
        lines += [f"cat >/usr/bin/{name} <<'END'", text + "END", f"chmod 0755 /usr/bin/{name}"]
    (folder / f"NVIDIA-Linux-x86_64-{OLD}.run").write_text("\n".join(lines) + "\n")
    manager(folder, stubs, "nvidia-fabricmanager", OLD)
    for name in ("dkms", "gcc", "make", "libc6-dev"):
        package(folder, name, "1", {f"usr/share/{name}/stub": ""})


def sign(folder: Path, keys: Path) -> str:
    """Write Packages, Release and InRelease, and the key beside them; the key's fingerprint."""
    gpg = ["gpg", "--homedir", str(keys), "--batch", "--yes", "--quiet"]
    if not keys.exists():
        keys.mkdir(mode=0o700)
        subprocess.run(
            [*gpg, "--passphrase", "", "--quick-gen-key", "fixture", "ed25519", "sign"], check=True
        )
    index = ""
    for deb in sorted(folder.glob("*.deb")):
        fields = subprocess.run(["dpkg-deb", "--field", str(deb)], check=True, capture_output=True, text=True)
        data = deb.read_bytes()
        index += f"{fields.stdout}Filename: ./{deb.name}\nSize: {len(data)}\n"
        index += f"SHA256: {hashlib.sha256(data).hexdigest()}\n\n"
    (folder / "Packages").write_text(index)
    digest = hashlib.sha256(index.encode()).hexdigest()
    (folder / "Release").write_text(f"Origin: NVIDIA\nSHA256:\n {digest} {len(index.encode())} Packages\n")
    release = [str(folder / "InRelease"), "--clearsign", str(folder / "Release")]
    subprocess.run([*gpg, "--digest-algo", "SHA512", "--output", *release], check=True)
    armour = subprocess.run([*gpg, "--armor", "--export"], check=True, capture_output=True)
    (folder / "3bf863cc.pub").write_bytes(armour.stdout)
    listing = subprocess.run(
        [*gpg, "--with-colons", "--fingerprint"], check=True, capture_output=True, text=True
    )
    return next(line.split(":")[9] for line in listing.stdout.splitlines() if line.startswith("fpr"))


def main() -> None:
    """Build what is missing, and sign it."""
    stubs, folder, kernel, edition = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    if edition == "closed":
        folder.mkdir()
        closed(folder, stubs)
        return
    suite = folder / "debian12" / "x86_64"
    suite.mkdir(parents=True, exist_ok=True)
    if edition == "first":
        for version in (OLD, NEW, NEXT):
            driver(suite, stubs, version)
        # The trap: the name says 580 and the version is of another branch.
        manager(suite, stubs, "nvidia-fabricmanager-580", NEXT)
        for version in (OLD, NEXT):
            manager(suite, stubs, "nvidia-fabricmanager", version)
        headers = {f"lib/modules/{kernel}/build/Makefile": ""}
        package(suite, f"linux-headers-{kernel}", "1", headers)
    else:
        manager(suite, stubs, "nvidia-fabricmanager", NEW)
    os.umask(0o022)
    (folder / "fingerprint").write_text(sign(suite, folder / "keys"))
    if shutil.which("gpgconf"):
        subprocess.run(["gpgconf", "--homedir", str(folder / "keys"), "--kill", "all"], check=True)


if __name__ == "__main__":
    main()
