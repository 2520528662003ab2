"""Backups of a folder in which a taken page, or a user's upload, has left what would harm its host."""

from __future__ import annotations

import os
import sqlite3
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import page_backup, page_database
from ansible_collections.headfirst.serving.plugins.module_utils.page_backup import (
    BackupError,
    listed,
    prune,
    restore,
    take,
)

JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "webui"
    (folder / "uploads").mkdir(parents=True)
    (folder / "uploads" / "report.txt").write_text("figures")
    with sqlite3.connect(folder / "webui.db") as database:
        database.execute("CREATE TABLE chat (text TEXT)")
        database.execute("INSERT INTO chat VALUES ('first')")
    database.close()
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "backups"


def taken(data: Path, folder: Path) -> dict[str, bytes]:
    """The files of a backup by name, without the manifest."""
    name = take(data, folder, "page:1", "command")
    with tarfile.open(folder / f"{name}.tar") as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    del files["manifest.json"]
    return files


def chats(content: bytes, tmp_path: Path) -> list[str]:
    copy = tmp_path / "read.db"
    copy.write_bytes(content)
    database = sqlite3.connect(copy)
    try:
        return [text for (text,) in database.execute("SELECT text FROM chat ORDER BY rowid")]
    finally:
        database.close()


def journal(pages: list[bytes], *, super_journal: bytes = b"", nonce: int = 7, size: int = 0) -> bytes:
    """A rollback journal that SQLite takes for hot: it restores `pages` from the first one on."""
    header = JOURNAL_MAGIC + struct.pack(">5I", len(pages), nonce, size or len(pages), 512, 4096)
    records = b"".join(
        struct.pack(">I", number) + page + struct.pack(">I", (nonce + sum(page[3896:0:-200])) & 0xFFFFFFFF)
        for number, page in enumerate(pages, 1)
    )
    end = b""
    if super_journal:
        lengths = struct.pack(">II", len(super_journal), sum(super_journal))
        end = struct.pack(">I", (1 << 30) // 4096 + 1) + super_journal + lengths + JOURNAL_MAGIC
    return header.ljust(512, b"\0") + records + end


def pages_of(path: Path) -> list[bytes]:
    content = path.read_bytes()
    return [content[start : start + 4096] for start in range(0, len(content), 4096)]


def test_a_hot_journal_is_rolled_back_in_the_copy_alone(data: Path, folder: Path, tmp_path: Path) -> None:
    before = pages_of(data / "webui.db")
    with sqlite3.connect(data / "webui.db") as database:
        database.execute("INSERT INTO chat VALUES ('of a transaction that never ended')")
    database.close()
    (data / "webui.db-journal").write_bytes(journal(before))
    present = {path.name: path.read_bytes() for path in data.glob("webui.db*")}
    assert chats(taken(data, folder)["webui.db"], tmp_path) == ["first"]
    assert {path.name: path.read_bytes() for path in data.glob("webui.db*")} == present


def test_a_journal_that_names_another_file_does_not_remove_it(
    data: Path, folder: Path, tmp_path: Path
) -> None:
    """SQLite removes the super-journal that a hot journal names, as the user who opens the database."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    hot = journal(pages_of(data / "webui.db"), super_journal=str(victim).encode())
    (data / "webui.db-journal").write_bytes(hot)
    files = taken(data, folder)
    assert victim.read_text() == "precious"
    assert chats(files["webui.db"], tmp_path) == ["first"]


def test_a_journal_that_makes_the_database_huge_gives_no_backup(data: Path, folder: Path) -> None:
    (data / "webui.db-journal").write_bytes(journal(pages_of(data / "webui.db"), size=1 << 24))
    with pytest.raises(BackupError, match=r"webui\.db"):
        take(data, folder, "page:1", "command")
    assert list(folder.iterdir()) == []


def test_a_database_whose_check_has_no_end_gives_no_backup(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_database, "CHECK_SECONDS", 1)
    with sqlite3.connect(data / "webui.db") as database:
        database.execute("PRAGMA ignore_check_constraints=ON")
        database.execute("CREATE TABLE slow (a CHECK (length(hex(randomblob(20000000))) > 0))")
        database.executemany("INSERT INTO slow VALUES (?)", [(number,) for number in range(60)])
    database.close()
    with pytest.raises(BackupError, match="took too long"):
        take(data, folder, "page:1", "command")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("level", ["file", "folder", "database", "log"])
def test_a_link_that_takes_a_files_place_is_not_followed(
    data: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """The page swaps after the files are listed and before they are opened."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "report.txt").write_text("of root alone")
    swapped = {
        "file": (data / "uploads/report.txt", secret / "report.txt"),
        "folder": (data / "uploads", secret),
        "database": (data / "webui.db", secret / "report.txt"),
        "log": (data / "webui.db-wal", secret / "report.txt"),
    }
    place, target = swapped[level]
    space = page_backup._require_space

    def swap(wanted: int, where: Path) -> None:
        space(wanted, where)
        if place.exists():
            place.rename(tmp_path / "moved")
        place.symlink_to(target)

    monkeypatch.setattr(page_backup, "_require_space", swap)
    if level == "database":
        with pytest.raises(BackupError, match=r"webui\.db was replaced"):
            take(data, folder, "page:1", "command")
        return
    files = taken(data, folder)
    assert b"of root alone" not in b"".join(files.values())
    assert ("uploads/report.txt" in files) == (level == "log")


def test_a_pipe_in_the_folder_is_left_out(data: Path, folder: Path) -> None:
    os.mkfifo(data / "uploads" / "pipe")
    os.mkfifo(data / "webui.db-wal")
    assert set(taken(data, folder)) == {"webui.db", "uploads/report.txt"}


@pytest.mark.parametrize("name", ["webui.db", "notes.sqlite", "vector_db/chroma.sqlite3"])
def test_an_upload_that_begins_as_a_database_is_copied_as_it_is(data: Path, folder: Path, name: str) -> None:
    upload = data / "uploads" / name
    upload.parent.mkdir(exist_ok=True)
    upload.write_bytes(b"SQLite format 3\0 and no more")
    assert taken(data, folder)[f"uploads/{name}"] == b"SQLite format 3\0 and no more"


@pytest.mark.parametrize("name", ["the-journal", "report.txt-wal", "a-shm", "webui.db-wal"])
def test_an_upload_that_is_named_as_a_log_is_kept(data: Path, folder: Path, name: str) -> None:
    (data / "uploads" / name).write_text("mine")
    files = taken(data, folder)
    assert files[f"uploads/{name}"] == b"mine"
    newest = listed(folder)[0]["name"]
    (data / "uploads" / name).unlink()
    restore(data, folder, newest)
    assert (data / "uploads" / name).read_text() == "mine"


WRITER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2:]:
    database.execute(statement)
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("mode", ["DELETE", "PERSIST", "WAL"])
def test_a_transaction_of_another_process_is_not_in_the_copy(
    data: Path, folder: Path, tmp_path: Path, mode: str
) -> None:
    """The writer has a journal with changed pages, which is not hot, and goes on after the backup."""
    statements = [f"PRAGMA journal_mode={mode}", "INSERT INTO chat VALUES ('second')", "BEGIN IMMEDIATE"]
    statements.append("INSERT INTO chat VALUES ('not finished')")
    command = [sys.executable, "-c", WRITER, str(data / "webui.db"), *statements]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin and writer.stdout and writer.stdout.readline() == "ready\n"
        files = taken(data, folder)
        writer.stdin.write("\n")
    assert writer.returncode == 0
    assert chats(files["webui.db"], tmp_path) == ["first", "second"]
    assert set(files) == {"webui.db", "uploads/report.txt"}


def test_a_database_that_stays_locked_is_named(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_database, "LOCK_SECONDS", 0)
    command = [sys.executable, "-c", WRITER, str(data / "webui.db"), "BEGIN EXCLUSIVE"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin and writer.stdout and writer.stdout.readline() == "ready\n"
        with pytest.raises(BackupError, match="locked"):
            take(data, folder, "page:1", "command")
        writer.stdin.write("\n")


def test_a_restore_into_links_that_the_page_left_changes_nothing_else(
    data: Path, folder: Path, tmp_path: Path
) -> None:
    name = take(data, folder, "page:1", "command")
    assert name
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    for link in (page_backup._RESTORED, page_backup._REPLACED):
        (data / link).symlink_to(outside)
    restore(data, folder, name)
    assert [path.name for path in outside.iterdir()] == ["precious"]
    assert sorted(path.name for path in data.iterdir()) == ["uploads", "webui.db"]


def nest(folder: Path, levels: int) -> None:
    """A file that many folders below, by paths that no program can name."""
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("below", dir_fd=descriptor)
        below = os.open("below", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=descriptor))
    os.close(descriptor)


@pytest.mark.parametrize("name", [page_backup._RESTORED, page_backup._REPLACED, "uploads/new"])
@pytest.mark.parametrize("kind", ["file", "folders"])
def test_nothing_that_the_page_left_prevents_a_restore(
    data: Path, folder: Path, name: str, kind: str
) -> None:
    backup = take(data, folder, "page:1", "command")
    assert backup
    if kind == "file":
        (data / name).write_text("in the way")
    else:
        (data / name).mkdir()
        nest(data / name, 1500)
    restore(data, folder, backup)
    assert sorted(path.name for path in data.iterdir()) == ["uploads", "webui.db"]
    assert [path.name for path in (data / "uploads").iterdir()] == ["report.txt"]


def test_what_no_restore_could_write_gives_no_backup(data: Path, folder: Path) -> None:
    nest(data / "uploads", 100)
    with pytest.raises(OSError, match="File name too long"):
        take(data, folder, "page:1", "command")


def test_automatic_backups_do_not_remove_those_that_a_person_made(data: Path, folder: Path) -> None:
    own = [take(data, folder, "page:1", "command") for _ in range(3)]
    automatic = [take(data, folder, "page:1", f"before page:{number}") for number in range(5)]
    assert sorted(prune(folder, 2)) == sorted([own[0], *automatic[:3]])
    assert {backup["name"] for backup in listed(folder)} == {*own[1:], *automatic[3:]}
