"""A bundle as a file: equal bytes for equal content, and a changed byte anywhere is found."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from bundles import items, manifest_of, quiet, write
from headfirst.common.errors import HeadfirstError, NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.bundle import archive, images, manifest
from headfirst.control.bundle.manifest import CONTENTS, SUMS, BundleManifest

FILES = {"apt/debian-12/a.deb": b"package" * 1000, "models/m/x": b"", "wheels/3.11/w.whl": b"wheel"}


def proven(path: Path, expected: BundleManifest | None = None) -> BundleManifest:
    """Read the bundle as a closed network does, and keep nothing."""
    found = archive.read_head(path)[0]
    archive.unpack(path, expected or found, lambda name, file: None, quiet)
    return found


def rewritten(path: Path, change: dict[str, bytes | None], more: list[tarfile.TarInfo] | None = None) -> None:
    """The archive with other content of some members, None for none, and with more members at its end."""
    with tarfile.open(path) as tar:
        members = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
    with tarfile.open(path, "w") as tar:
        for name, data in (members | change).items():
            if data is not None:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        for info in more or ():
            tar.addfile(info, io.BytesIO(bytes(info.size)))


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "b.tar", dict(sorted(FILES.items(), reverse=name == "two")))
    assert (tmp_path / "one/b.tar").read_bytes() == (tmp_path / "two/b.tar").read_bytes()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    made = write(tmp_path / "b.tar", FILES)
    found = proven(tmp_path / "b.tar")
    assert found == made and set(found.files) == set(FILES)
    with tarfile.open(tmp_path / "b.tar") as tar:
        assert tar.getnames() == [SUMS, CONTENTS, *sorted(FILES)]
        assert {(info.mtime, info.uid, info.uname) for info in tar} == {(0, 0, "")}


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    made = write(path, {"images/a": b"layer", "wheels/b": b"wheel"})
    data = path.read_bytes()
    meant = [made.sums, made.contents, b"layer", b"wheel"]
    for content in meant:
        for at in {data.index(content), data.index(content) + len(content) - 1}:
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            with pytest.raises(HeadfirstError):
                proven(path, made)


def test_a_bundle_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    write(path, FILES)
    data = path.read_bytes()
    for size in (0, 100, 600, len(data) // 3, len(data) // 2, data.index(b"wheel")):
        path.write_bytes(data[:size])
        with pytest.raises(UntrustedError):
            proven(path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"models/m/x": None}, "models/m/x is missing"),
        ({"models/m/x": b"more"}, "models/m/x has 4 bytes, and 0 in the manifest"),
        ({"wheels/3.11/w.whl": b"whEel"}, "its hash is another one"),
        ({"../evil": b"x"}, "../evil is not in its manifest"),
        ({"/etc/passwd": b"x"}, "/etc/passwd is not in its manifest"),
        ({CONTENTS: b"{}"}, "its hash is not the one in SHA256SUMS"),
    ],
)
def test_other_members_are_refused(tmp_path: Path, change: dict[str, bytes | None], why: str) -> None:
    write(tmp_path / "b.tar", FILES)
    rewritten(tmp_path / "b.tar", change)
    with pytest.raises(UntrustedError, match=re.escape(why)) as error:
        proven(tmp_path / "b.tar")
    assert error.value.where == str(tmp_path / "b.tar")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE])
def test_members_that_are_no_files_are_refused(tmp_path: Path, kind: bytes) -> None:
    write(tmp_path / "b.tar", FILES)
    info = tarfile.TarInfo("models/link")
    info.type, info.linkname = kind, "/etc/passwd"
    rewritten(tmp_path / "b.tar", {}, [info])
    with pytest.raises(UntrustedError, match="models/link"):
        proven(tmp_path / "b.tar")


def test_a_member_twice_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "b.tar", {"models/x": b""})
    rewritten(tmp_path / "b.tar", {}, [tarfile.TarInfo("models/x")])
    with pytest.raises(UntrustedError, match="models/x is not in its manifest"):
        proven(tmp_path / "b.tar")


OUTSIDE = ("../x", "/x", "a/../../x", "a//b", "a\\b", "C:x", "a/\x1b[2Jb", "b/./c", " x", "x/")


@pytest.mark.parametrize(
    "sums",
    [
        *(f"{'0' * 64}  {name}\n{'0' * 64}  {CONTENTS}\n".encode() for name in OUTSIDE),
        *(b"", b"x", b"\xff", b"0  a\n", b"\n", b"0" * 64 + b" *a\n"),
    ],
)
def test_a_manifest_that_is_none_or_has_a_path_that_leads_out_is_refused(sums: bytes) -> None:
    with pytest.raises(UntrustedError):
        manifest.read(sums, b"{}", where="b.tar")


def test_another_format_is_refused_by_its_number(tmp_path: Path) -> None:
    made = manifest_of(items(tmp_path, {"a": b"a"}))
    later = made.what.model_copy(update={"format": 2})
    with pytest.raises(UntrustedError, match="format 2, and this Headfirst reads 1"):
        manifest.make(later, {"a": made.files["a"].sha256})


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    with pytest.raises(NotReadyError, match="no such bundle"):
        archive.read_head(path)
    path.write_bytes(b"not a tar archive" * 100)
    with pytest.raises(UntrustedError, match="cannot be read"):
        archive.read_head(path)
    with tarfile.open(path, "w") as tar:
        tar.addfile(tarfile.TarInfo("something"))
    with pytest.raises(UntrustedError, match="not a bundle"):
        archive.read_head(path)
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo(SUMS))
    with pytest.raises(UntrustedError):
        archive.read_head(path)


def test_a_file_that_changes_meanwhile_ends_the_writing(tmp_path: Path) -> None:
    found = items(tmp_path / "files", {"a": b"before"})
    made = manifest_of(found)
    (tmp_path / "files/a").write_bytes(b"after!")
    with pytest.raises(NotReadyError, match="changed while"):
        archive.write(tmp_path / "b.tar", made, b"", found, quiet)
    assert not (tmp_path / "b.tar").exists()


def test_a_large_signature_or_manifest_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    info = tarfile.TarInfo(SUMS)
    info.size = manifest.MAX_SUMS + 1
    path.write_bytes(info.tobuf())
    with pytest.raises(UntrustedError, match="larger than"):
        archive.read_head(path)


def test_a_manifest_of_another_version_is_refused_with_a_reason(tmp_path: Path) -> None:
    made = manifest_of(items(tmp_path, {"a": b"a"}))
    contents = made.contents.replace(b'"since"', b'"until"')
    digest = hashlib.sha256(contents).hexdigest()
    sums = f"{digest}  {CONTENTS}\n{made.files['a'].sha256}  a\n".encode()
    with pytest.raises(UntrustedError, match=r"bundle\.json: since") as caught:
        manifest.read(sums, contents, where="b.tar")
    assert "Another version of Headfirst" in str(caught.value.hint)


def headers(path: Path, kind: bytes, size: int) -> None:
    """A small file that claims a header of `size` bytes before its first member; the rest is a hole."""
    info = tarfile.TarInfo("long")
    info.type, info.size = kind, size
    with path.open("wb") as file:
        for _ in range(100):
            file.write(info.tobuf(tarfile.GNU_FORMAT))
            file.seek(size, 1)
        file.truncate(file.tell() + 1024)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
@pytest.mark.parametrize("size", [3 << 20, 1 << 20])
def test_headers_without_bounds_are_refused_before_the_signature(
    tmp_path: Path, kind: bytes, size: int
) -> None:
    headers(tmp_path / "b.tar", kind, size)
    tracemalloc.start()
    try:
        with pytest.raises(UntrustedError, match=r"cannot be read|not a bundle"):
            archive.read_head(tmp_path / "b.tar")
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_an_image_with_such_headers_is_not_collected(tmp_path: Path) -> None:
    headers(tmp_path / "engine.tar", tarfile.GNUTYPE_LONGNAME, 3 << 20)
    with pytest.raises(UntrustedError, match="a header has more than 1048576 bytes"):
        images.parts(tmp_path / "engine.tar", "engine:1")
