"""Backups of a chat page: databases in use, what is left out, what a restore refuses."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import tarfile
import time
from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import page_backup
from ansible_collections.headfirst.serving.plugins.module_utils.page_backup import (
    BackupError,
    listed,
    prune,
    restore,
)
from page_copies import take


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A database with one chat, an upload, a cache."""
    folder = tmp_path / "webui"
    (folder / "uploads").mkdir(parents=True)
    (folder / "cache").mkdir()
    (folder / "cache" / "big").write_bytes(b"x" * 1000)
    (folder / "uploads" / "report.txt").write_text("figures")
    write_chat(folder, "first")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "backups"


def write_chat(data: Path, text: str) -> None:
    with sqlite3.connect(data / "webui.db") as database:
        database.execute("CREATE TABLE IF NOT EXISTS chat (text TEXT)")
        database.execute("INSERT INTO chat VALUES (?)", (text,))
    database.close()


def chats(data: Path) -> list[str]:
    database = sqlite3.connect(data / "webui.db")
    try:
        return [text for (text,) in database.execute("SELECT text FROM chat ORDER BY rowid")]
    finally:
        database.close()


def taken(data: Path, folder: Path) -> str:
    name = take(data, folder)
    assert name
    return name


def test_a_restore_brings_back_what_was_there(data: Path, folder: Path) -> None:
    inode = data.stat().st_ino
    name = taken(data, folder)
    write_chat(data, "second")
    (data / "uploads" / "report.txt").unlink()
    (data / "uploads" / "later.txt").write_text("later")
    restore(data, folder, name)
    assert chats(data) == ["first"]
    assert sorted(path.name for path in data.rglob("*")) == ["report.txt", "uploads", "webui.db"]
    assert (data / "uploads" / "report.txt").read_text() == "figures"
    assert data.stat().st_ino == inode  # a container mounts the folder


def test_only_the_owner_may_read_it(data: Path, folder: Path) -> None:
    name = taken(data, folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / f"{name}.tar").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in folder.iterdir()] == [f"{name}.tar"]


def test_the_list_has_what_the_manifest_records(data: Path, folder: Path) -> None:
    name = taken(data, folder)
    (found,) = listed(folder)
    assert (found["name"], found["image"], found["reason"], found["files"], found["problem"]) == (
        name,
        "page:1",
        "command",
        2,
        "",
    )


def test_links_and_the_cache_are_left_out(data: Path, folder: Path) -> None:
    (data / "passwd").symlink_to("/etc/passwd")
    name = taken(data, folder)
    with tarfile.open(folder / f"{name}.tar") as tar:
        assert tar.getnames() == ["webui.db", "uploads/report.txt", "manifest.json"]


def test_an_empty_folder_gives_no_backup(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert take(tmp_path / "empty", folder) is None
    assert list(folder.iterdir()) == []


def test_a_damaged_database_gives_no_backup(data: Path, folder: Path) -> None:
    path = data / "webui.db"
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(BackupError, match=r"webui\.db"):
        take(data, folder)
    assert list(folder.iterdir()) == []


def test_a_disk_that_is_too_small_gives_no_backup(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_backup.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 100})())
    with pytest.raises(BackupError, match="0 MB are free, and 0 MB are needed"):
        take(data, folder)


def test_the_newest_stay(data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "gmtime", lambda: time.struct_time((2026, 11, 22, 12, 0, 0, 6, 326, 0)))
    made = [taken(data, folder) for _ in range(12)]
    assert made[:2] == ["20261122T120000Z", "20261122T120000Z-1"]
    removed = prune(folder, 3, also=made[0])
    assert sorted(removed) == sorted(made[1:9])
    assert [backup["name"] for backup in listed(folder)] == [*reversed(made[9:]), made[0]]


def rewritten(path: Path, change: dict[str, bytes | None]) -> None:
    """Write the archive again with other members: None removes one."""
    with tarfile.open(path) as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    manifest = found.pop("manifest.json")
    found |= {name: text for name, text in change.items() if text is not None}
    with tarfile.open(path, "w") as tar:
        for name, text in [*found.items(), ("manifest.json", manifest)]:
            if change.get(name, b"") is not None:
                info = tarfile.TarInfo(name)
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"uploads/report.txt": b"FIGURES"}, "differs from what was saved"),
        ({"uploads/report.txt": None}, "lacks uploads/report.txt"),
        ({"../outside": b"x"}, "its manifest does not"),
        ({"/outside": b"x"}, "its manifest does not"),
        ({"manifest.json": None}, "no manifest"),
    ],
)
def test_a_backup_that_was_changed_is_refused_and_the_data_stays(
    data: Path, folder: Path, change: dict[str, bytes | None], message: str
) -> None:
    name = taken(data, folder)
    write_chat(data, "second")
    rewritten(folder / f"{name}.tar", change)
    with pytest.raises(BackupError, match=message):
        restore(data, folder, name)
    assert chats(data) == ["first", "second"]
    assert sorted(path.name for path in data.iterdir()) == ["cache", "uploads", "webui.db"]


def test_names_outside_the_folder_in_a_manifest_are_refused(data: Path, folder: Path, tmp_path: Path) -> None:
    name = taken(data, folder)
    path = folder / f"{name}.tar"
    with tarfile.open(path) as tar:
        manifest = json.loads(tar.extractfile("manifest.json").read())  # type: ignore[union-attr]
    manifest["files"]["../outside"] = manifest["files"].pop("uploads/report.txt")
    rewritten(path, {"../outside": b"figures", "uploads/report.txt": None})
    with tarfile.open(path, "a") as tar:
        text = json.dumps(manifest).encode()
        info = tarfile.TarInfo("manifest.json")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    with pytest.raises(BackupError):
        restore(data, folder, name)
    assert not (tmp_path / "outside").exists()


def test_a_truncated_archive_is_listed_with_its_problem(data: Path, folder: Path) -> None:
    name = taken(data, folder)
    path = folder / f"{name}.tar"
    path.write_bytes(path.read_bytes()[:5000])
    (found,) = listed(folder)
    assert found["problem"]
    with pytest.raises(BackupError):
        restore(data, folder, name)
    assert chats(data) == ["first"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "20261122T120000Z", ""])
def test_a_backup_that_is_not_there_is_named_with_those_that_are(data: Path, folder: Path, name: str) -> None:
    there = taken(data, folder)
    with pytest.raises(BackupError, match=there):
        restore(data, folder, name)
