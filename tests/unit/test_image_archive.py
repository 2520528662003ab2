"""Archives of docker save in both layouts, and what is not one."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import image_archive
from ansible_collections.headfirst.serving.plugins.module_utils.image_archive import ArchiveError, describe
from ansible_collections.headfirst.serving.plugins.modules import image_info

CONFIG = json.dumps(
    {"created": "2026-01-01T00:00:00Z", "rootfs": {"diff_ids": ["sha256:aa", "sha256:bb"]}}
).encode()
ID = "sha256:" + hashlib.sha256(CONFIG).hexdigest()


def archive(path: Path, files: dict[str, object], mode: str = "w") -> str:
    with tarfile.open(path, mode) as tar:
        for name, content in files.items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return str(path)


def entry(config: str, *names: str) -> dict[str, object]:
    return {"Config": config, "RepoTags": list(names), "Layers": []}


def test_both_layouts_of_docker_save(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", {"x.json": CONFIG, "manifest.json": [entry("x.json", "sglang:cpu")]})
    assert describe(path, "sglang:cpu") == {
        "ids": [ID],
        "layers": ["sha256:aa", "sha256:bb"],
        "created": "2026-01-01T00:00:00Z",
    }
    since_docker_25 = {
        "blobs/sha256/x": CONFIG,
        "manifest.json": [entry("blobs/sha256/x", "sglang:cpu")],
        "index.json": {"manifests": [{"digest": "sha256:cc"}]},
    }
    path = archive(tmp_path / "b.tar", since_docker_25)
    assert describe(path, "other:name")["ids"] == [ID, "sha256:cc"], "the manifest's digest, too"


def test_of_several_images_the_named_one_is_taken(tmp_path: Path) -> None:
    other = CONFIG.replace(b"aa", b"dd")
    files = {"x": CONFIG, "y": other, "manifest.json": [entry("y", "b:1"), entry("x", "a:1")]}
    path = archive(tmp_path / "a.tar", files)
    assert describe(path, "a:1")["ids"] == [ID]
    with pytest.raises(ArchiveError, match="holds 2 images, and none is named c:1"):
        describe(path, "c:1")


def test_what_is_not_an_archive_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"no file .*docker save -o"):
        describe(str(tmp_path / "absent.tar"), "a:1")
    compressed = archive(tmp_path / "a.tar.gz", {"manifest.json": []}, "w:gz")
    with pytest.raises(ArchiveError, match="gunzip"):
        describe(compressed, "a:1")
    with pytest.raises(ArchiveError, match=r"manifest\.json"):
        describe(archive(tmp_path / "b.tar", {"other": b""}), "a:1")


GIB = 1 << 30


def headers(path: Path, *members: tarfile.TarInfo) -> str:
    """An archive of headers alone; what follows them is a hole, so that it takes no room."""
    with path.open("wb") as file:
        for member in members:
            file.write(member.tobuf(tarfile.GNU_FORMAT))
        file.truncate(2 * GIB)
    return str(path)


def sparse(name: str) -> tarfile.TarInfo:
    """A file without data that claims a size of 1 GiB, as old GNU tar writes holes."""
    info = tarfile.TarInfo(name)
    info.type = tarfile.GNUTYPE_SPARSE
    return info


def described_in(path: str) -> int:
    """The most memory that a refusal took, in bytes."""
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveError):
            describe(path, "a:1")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_small_file_that_claims_a_large_document_takes_no_memory(tmp_path: Path) -> None:
    header = bytearray(sparse("manifest.json").tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"%011o\0" % GIB  # its real size, as GNU tar writes it; all of it is a hole
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a.tar").write_bytes(bytes(header) + bytes(1024))
    assert described_in(str(tmp_path / "a.tar")) < 64 << 20


@pytest.mark.parametrize("type", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_document_or_a_header_of_a_gibibyte_is_not_read(tmp_path: Path, type: bytes) -> None:
    info = tarfile.TarInfo("manifest.json")
    info.type, info.size = type, GIB
    assert described_in(headers(tmp_path / "a.tar", info)) < 64 << 20


@pytest.mark.parametrize("type", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_the_headers_of_all_files_are_limited_together(tmp_path: Path, type: bytes) -> None:
    header = tarfile.TarInfo("long")
    header.type, header.size = type, 1 << 20
    with (tmp_path / "a.tar").open("wb") as file:
        for number in range(70):
            file.write(header.tobuf(tarfile.GNU_FORMAT))
            file.seek(header.size, 1)  # a hole
            file.write(tarfile.TarInfo(str(number)).tobuf())
        file.write(bytes(1024))
    with pytest.raises(ArchiveError, match="have more than 67108864 bytes together"):
        describe(str(tmp_path / "a.tar"), "a:1")


def test_an_archive_of_many_files_is_not_read_to_its_end(tmp_path: Path) -> None:
    members = [tarfile.TarInfo(str(number)) for number in range(image_archive.MAX_MEMBERS + 1)]
    with pytest.raises(ArchiveError, match="more than 10000 files"):
        describe(headers(tmp_path / "a.tar", *members), "a:1")


@pytest.mark.parametrize(
    "files",
    [
        {"manifest.json": []},
        {"manifest.json": [7]},
        {"manifest.json": b"[" * 100_000},
        {"manifest.json": [entry("x", "a:1")], "x": b"[]"},
        {"manifest.json": [entry("x", "a:1")], "x": CONFIG, "index.json": []},
    ],
)
def test_documents_of_another_shape_are_refused(tmp_path: Path, files: dict[str, object]) -> None:
    with pytest.raises(ArchiveError, match="docker save"):
        describe(archive(tmp_path / "a.tar", files), "a:1")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lmsysorg/sglang:v1", "lmsysorg/sglang:v1"),
        ("lmsysorg/sglang:v1@sha256:aa", "lmsysorg/sglang@sha256:aa"),
        ("host:5000/sglang@sha256:aa", "host:5000/sglang@sha256:aa"),
        ("host:5000/sglang:v1@sha256:aa", "host:5000/sglang@sha256:aa"),
    ],
)
def test_a_digest_says_more_than_a_tag(name: str, expected: str) -> None:
    assert image_info.without_tag(name) == expected


def test_an_image_is_compared_with_all_that_is_expected() -> None:
    attributes = {
        "Id": ID,
        "Created": "2026-01-01T00:00:00Z",
        "RootFS": {"Layers": ["sha256:aa"]},
        "Config": {"Labels": None},
    }
    anything = {"name": "a:1", "image_id": "", "archive": {}, "tarball": "", "labels": {}}
    content = {"layers": ["sha256:aa"], "created": "2026-01-01T00:00:00Z"}

    def reason(**expected: object) -> str:
        return image_info.mismatch(attributes, {**anything, **expected})

    assert reason() == reason(image_id=ID) == reason(archive={"ids": [ID], "layers": [], "created": ""}) == ""
    assert "its ID is" in reason(image_id="sha256:00")
    assert "the archive holds sha256:00" in reason(archive={**content, "ids": ["sha256:00"], "layers": []})
    assert reason(archive={**content, "ids": ["sha256:00"]}) == ""  # converted for containerd's store
    assert "label headfirst.source is not set" in reason(labels={"headfirst.source": "x"})
