"""A release is made, built again with the same bytes, signed with a throw-away key, and verified."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from urllib.parse import quote

import pytest
from documented import ROOT, blocks
from packaging.requirements import Requirement
from releases import SIGNER, VERSION, committed, git, made_key, set_up, tool

TAG = f"v{VERSION}"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_key(tmp_path_factory.mktemp("key") / "id_ed25519")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, key: Path) -> Path:
    """The working tree as a commit with a signed tag."""
    folder = committed(tmp_path_factory.mktemp("checkout"))
    set_up(folder, key, key.with_name("signers"))
    git(folder, "tag", "--sign", "--message", f"Headfirst {VERSION}", TAG)
    return folder


@pytest.fixture(scope="module")
def files(checkout: Path, key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release's files, signed."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    tool.release(checkout, folder, key=key)
    return folder


def run(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-e"], input=text, cwd=folder, capture_output=True, text=True)


def documented(word: str) -> str:
    """The commands of docs/release.md that have this word."""
    (found,) = [one.text for one in blocks("sh") if one.page.name == "release.md" and word in one.text]
    return found.replace("v0.1.0", TAG)


@pytest.fixture
def downloaded(files: Path, key: Path, tmp_path: Path) -> Path:
    """The files as a user has them, beside the list of signers."""
    folder = tmp_path / "downloaded"
    shutil.copytree(files, folder)
    shutil.copy(key.with_name("signers"), folder)
    return folder


def test_a_release_has_these_files(files: Path) -> None:
    assert sorted(path.name for path in files.iterdir()) == [
        "SHA256SUMS",
        "SHA256SUMS.sig",
        f"headfirst-{VERSION}-py3-none-any.whl",
        f"headfirst-{VERSION}-schemas.json",
        f"headfirst-{VERSION}.cdx.json",
        f"headfirst-{VERSION}.tar.gz",
        f"headfirst-serving-{VERSION}.tar.gz",
    ]


def test_another_build_has_the_same_bytes(checkout: Path, files: Path, tmp_path: Path) -> None:
    """In another folder, with another umask, later, and with files of other times, modes and order."""
    clone = tmp_path / "deep" / "clone"
    git(checkout, "clone", "--quiet", str(checkout), str(clone))
    for path in sorted(clone.rglob("*"), reverse=True):
        if ".git" not in path.parts and path.is_file():
            os.utime(path, (1, 1))
    before = os.umask(0o077)
    try:
        tool.release(clone, tmp_path / "again", tagged=False)
    finally:
        os.umask(before)
    again = {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}
    assert again == {path.name: path.read_bytes() for path in files.iterdir() if path.suffix != ".sig"}


def test_the_wheel_has_command_collection_and_locks(files: Path) -> None:
    with zipfile.ZipFile(files / f"headfirst-{VERSION}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
    assert {
        "headfirst/locks/requirements.lock",
        "headfirst/node/locks/base.lock",
        "ansible_collections/headfirst/serving/galaxy.yml",
        "ansible_collections/headfirst/serving/plugins/modules/reach.py",
    } <= names
    assert not {name.partition("/")[0] for name in names} - {
        "headfirst",
        "ansible_collections",
        f"headfirst-{VERSION}.dist-info",
    }


def test_the_collection_installs(files: Path, tmp_path: Path) -> None:
    """ansible-galaxy compares the hashes of all files in it."""
    archive = files / f"headfirst-serving-{VERSION}.tar.gz"
    argv = [sys.executable, "-m", "ansible", "galaxy", "collection", "install", "--offline", "--force"]
    subprocess.run([*argv, "-p", str(tmp_path), str(archive)], check=True, capture_output=True)
    installed = tmp_path / "ansible_collections/headfirst/serving"
    assert (installed / "roles/engine/tasks/main.yml").is_file()
    assert {path.name for path in (installed / "tests").rglob("*")} == {"sanity", "ignore-2.19.txt"}
    assert not {path.name for path in installed.iterdir()} & {
        "COLLECTION.md",
        "docs",
        "tools",
        "pyproject.toml",
    }
    # What the node tools are made from.
    assert {path.name for path in (installed / "py/headfirst").iterdir()} == {"__init__.py", "common", "node"}
    assert (installed / "README.md").read_bytes() == (ROOT / "COLLECTION.md").read_bytes()
    with tarfile.open(archive) as packed:
        assert len({member.mtime for member in packed}) == 1


def test_the_sbom_has_every_package_of_every_lock(files: Path) -> None:
    listed = json.loads((files / f"headfirst-{VERSION}.cdx.json").read_text("utf-8"))
    hashes = {
        component["purl"]: {one["content"] for one in component["hashes"]}
        for component in listed["components"]
        if "purl" in component
    }
    parts = {entry["ref"]: set(entry.get("dependsOn", ())) for entry in listed["dependencies"]}
    locks = [ROOT / "requirements.lock", *(ROOT / "py").rglob("*.lock")]
    assert len(locks) == len(parts["headfirst"]) > 10
    for lock in locks:
        for block in re.split(r"(?m)^(?=[a-z])", lock.read_text("utf-8")):
            if "--hash=" not in block:
                continue
            wanted = Requirement(re.split(r"\\|--hash", block)[0].strip())
            if wanted.marker and re.search(r"== \"(win32|emscripten)\"", str(wanted.marker)):
                continue
            purl = f"pkg:pypi/{wanted.name}@{quote(str(wanted.specifier)[2:])}"
            assert purl in parts[lock.relative_to(ROOT).as_posix().removeprefix("py/")], purl
            assert set(re.findall(r"sha256:(\w+)", block)) <= hashes[purl]


def test_sums_and_signature_verify_as_documented(downloaded: Path) -> None:
    done = run(documented("-Y verify"), downloaded)
    assert done.returncode == 0, done.stderr
    assert f'Good "headfirst-release" signature for {SIGNER}' in done.stdout
    assert done.stdout.count(": OK\n") == 4


@pytest.mark.parametrize(
    "name",
    [f"headfirst-{VERSION}.tar.gz", f"headfirst-serving-{VERSION}.tar.gz", "SHA256SUMS", "SHA256SUMS.sig"],
)
def test_a_changed_byte_fails(downloaded: Path, name: str) -> None:
    path = downloaded / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert run(documented("-Y verify"), downloaded).returncode != 0


def test_sums_of_a_stranger_fail(downloaded: Path, tmp_path: Path) -> None:
    sums = downloaded / "SHA256SUMS"
    stranger = made_key(tmp_path / "stranger")
    (downloaded / "SHA256SUMS.sig").write_bytes(
        tool.sign(sums.read_bytes(), stranger, namespace=tool.NAMESPACE)
    )
    assert run(documented("-Y verify"), downloaded).returncode != 0


def test_the_tag_verifies_as_documented(checkout: Path, key: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(checkout, "clone", "--quiet", str(checkout), str(clone))
    shutil.copy(key.with_name("signers"), clone)
    done = run(documented("verify-tag"), clone)
    assert done.returncode == 0, done.stderr
    assert f'Good "git" signature for {SIGNER}' in done.stderr
    # The same tag for other content: one byte of the tag object differs.
    tag = git(clone, "cat-file", "tag", TAG).replace(f"Headfirst {VERSION}", f"Headfirst {VERSION}!")
    (tmp_path / "tag").write_text(tag)
    forged = git(clone, "hash-object", "-t", "tag", "-w", str(tmp_path / "tag")).strip()
    git(clone, "update-ref", f"refs/tags/{TAG}", forged)
    assert run(documented("verify-tag"), clone).returncode != 0
