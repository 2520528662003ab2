"""The archive of an image: what Docker reads in it, and that the same files give the same bytes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import IO

import pytest
from headfirst.control.images import archive
from headfirst.control.images.archive import LayerFile

_CONFIG = {"Env": ["PYTHONPATH=/opt/site"]}


def _members(folder: Path) -> list[LayerFile]:
    return [
        LayerFile(f"opt/{path.name}", path.stat().st_size, executable=path.name == "run", source=path)
        for path in folder.iterdir()
    ]


def _layer(folder: Path) -> archive.Layer:
    return lambda out: archive.write_layer(out, _members(folder))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / ("long-" * 40)).write_bytes(os.urandom(1_500_000))  # more than one copy buffer, a name of 200
    return folder


def _read(path: Path) -> tuple[dict[str, object], dict[str, bytes]]:
    with tarfile.open(path) as tar:
        data = {member.name: (tar.extractfile(member) or io.BytesIO()).read() for member in tar}
    return json.loads(data["manifest.json"])[0], data


def test_docker_finds_config_and_layers_by_their_hashes(tmp_path: Path, files: Path) -> None:
    path = tmp_path / "image.tar"
    layers = {"first": _layer(files), "second": lambda out: archive.write_layer(out, [])}
    archive.write(path, "name:tag", layers, _CONFIG)
    manifest, data = _read(path)
    assert manifest["RepoTags"] == ["name:tag"]
    document = data[str(manifest["Config"])]
    image = json.loads(document)
    assert image["config"] == _CONFIG
    assert image["rootfs"]["diff_ids"] == [
        "sha256:" + hashlib.sha256(data[name]).hexdigest()
        for name in manifest["Layers"]  # type: ignore[attr-defined]
    ]
    assert archive.image_id(path) == "sha256:" + hashlib.sha256(document).hexdigest()


def test_a_layer_holds_the_files_with_folders_owner_and_mode(files: Path) -> None:
    out = io.BytesIO()
    archive.write_layer(out, _members(files))
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as tar:
        assert tar.getnames() == ["opt", f"opt/{'long-' * 40}", "opt/run"]
        assert [member.mode for member in tar] == [0o755, 0o644, 0o755]
        assert {(member.uid, member.mtime) for member in tar} == {(0, archive.EPOCH)}
        for path in files.iterdir():
            member = tar.extractfile(f"opt/{path.name}")
            assert member is not None
            assert member.read() == path.read_bytes()


def test_a_new_head_and_a_shorter_size_replace_the_begin_and_the_end(files: Path) -> None:
    out = io.BytesIO()
    archive.write_layer(out, [LayerFile("run", 6, head=b"##", source=files / "run")])
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as tar:
        member = tar.extractfile("run")
        assert member is not None
        assert member.read() == b"##/bin"


def test_times_and_order_of_the_files_change_nothing(tmp_path: Path, files: Path) -> None:
    one, two = tmp_path / "one.tar", tmp_path / "two.tar"
    archive.write(one, "name:tag", {"files": _layer(files)}, _CONFIG)
    os.utime(files / "run", (5, 5))

    def reversed_layer(out: IO[bytes]) -> None:
        archive.write_layer(out, sorted(_members(files), key=lambda member: member.name, reverse=True))

    archive.write(two, "name:tag", {"files": reversed_layer}, _CONFIG)
    assert one.read_bytes() == two.read_bytes()


def test_another_file_gives_another_id(tmp_path: Path, files: Path) -> None:
    path = tmp_path / "image.tar"
    archive.write(path, "name:tag", {"files": _layer(files)}, _CONFIG)
    before = archive.image_id(path)
    (files / "run").write_text("#!/bin/ksh\n")
    archive.write(path, "name:tag", {"files": _layer(files)}, _CONFIG)
    assert archive.image_id(path) != before
