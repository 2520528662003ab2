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
from ansible_collections.headfirst.serving.plugins.module_utils import page_backup, page_copy
from ansible_collections.headfirst.serving.plugins.module_utils.page_backup import (
    BackupError,
    listed,
    prune,
    restore,
)
from page_copies import PROGRAM, take

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
    name = take(data, folder)
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


def journal(pages: list[bytes], size: int) -> bytes:
    """A rollback journal that SQLite takes for hot: it restores `pages` from the first one on."""
    header = JOURNAL_MAGIC + struct.pack(">5I", len(pages), 7, size, 512, 4096)
    records = b"".join(
        struct.pack(">I", number) + page + struct.pack(">I", (7 + sum(page[3896:0:-200])) & 0xFFFFFFFF)
        for number, page in enumerate(pages, 1)
    )
    return header.ljust(512, b"\0") + records


def pages_of(path: Path) -> list[bytes]:
    content = path.read_bytes()
    return [content[start : start + 4096] for start in range(0, len(content), 4096)]


def test_a_transaction_that_never_ended_is_not_in_the_copy(data: Path, folder: Path, tmp_path: Path) -> None:
    before = pages_of(data / "webui.db")
    with sqlite3.connect(data / "webui.db") as database:
        database.execute("INSERT INTO chat VALUES ('of a transaction that never ended')")
    database.close()
    (data / "webui.db-journal").write_bytes(journal(before, len(before)))
    assert chats(taken(data, folder)["webui.db"], tmp_path) == ["first"]


def test_a_journal_that_makes_the_database_huge_gives_no_backup(data: Path, folder: Path) -> None:
    (data / "webui.db-journal").write_bytes(journal(pages_of(data / "webui.db"), 1 << 24))
    with pytest.raises(BackupError, match=r"webui\.db"):
        take(data, folder)
    assert list(folder.iterdir()) == []


def test_a_program_that_writes_without_end_does_not_fill_the_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a database that takes SQLite over could write in its container."""
    ended = []

    def endless(arguments: list[str]) -> page_backup.Pieces:
        try:
            while True:
                yield bytes(1000), None
        finally:
            ended.append("container")

    monkeypatch.setattr(page_backup.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 9000})())
    with pytest.raises(BackupError, match="is full"):
        page_backup.take(folder, "page:1", "command", endless)
    assert ended == ["container"]
    assert list(folder.iterdir()) == []


def test_a_database_whose_check_has_no_end_gives_no_backup(data: Path, folder: Path) -> None:
    with sqlite3.connect(data / "webui.db") as database:
        database.execute("PRAGMA ignore_check_constraints=ON")
        database.execute("CREATE TABLE slow (a CHECK (length(hex(randomblob(20000000))) > 0))")
        database.executemany("INSERT INTO slow VALUES (?)", [(number,) for number in range(60)])
    database.close()
    with pytest.raises(BackupError, match="took too long"):
        take(data, folder, program=PROGRAM.replace("_CPU_SECONDS = 60", "_CPU_SECONDS = 1"))
    assert list(folder.iterdir()) == []


def test_links_are_not_followed(data: Path, folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (data / "webui.db").rename(secret / "webui.db")
    (data / "webui.db").symlink_to(secret / "webui.db")
    (data / "uploads" / "folder").symlink_to(secret)
    assert set(taken(data, folder)) == {"uploads/report.txt"}


def test_a_pipe_in_the_folder_is_left_out(data: Path, folder: Path) -> None:
    os.mkfifo(data / "uploads" / "pipe")
    os.mkfifo(data / "webui.db-wal")
    assert set(taken(data, folder)) == {"webui.db", "uploads/report.txt"}


@pytest.mark.parametrize("name", ["webui.db", "vector_db/chroma.sqlite3"])
def test_an_upload_that_begins_as_a_database_is_copied_as_it_is(data: Path, folder: Path, name: str) -> None:
    upload = data / "uploads" / name
    upload.parent.mkdir(exist_ok=True)
    upload.write_bytes(b"SQLite format 3\0 and no more")
    assert taken(data, folder)[f"uploads/{name}"] == b"SQLite format 3\0 and no more"


@pytest.mark.parametrize("name", ["report.txt-wal", "webui.db-wal"])
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


def test_a_database_that_stays_locked_is_named(data: Path, folder: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(data / "webui.db"), "BEGIN EXCLUSIVE"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin and writer.stdout and writer.stdout.readline() == "ready\n"
        with pytest.raises(BackupError, match=r"webui\.db cannot be copied: 'database is locked'"):
            take(data, folder, program=PROGRAM.replace("_LOCK_SECONDS = 30", "_LOCK_SECONDS = 0"))
        writer.stdin.write("\n")


def test_a_restore_into_links_that_the_page_left_changes_nothing_else(
    data: Path, folder: Path, tmp_path: Path
) -> None:
    name = take(data, folder)
    assert name
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    for link in (page_copy.RESTORED, page_copy.REPLACED):
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


@pytest.mark.parametrize("name", [page_copy.RESTORED, page_copy.REPLACED, "uploads/new"])
@pytest.mark.parametrize("kind", ["file", "folders"])
def test_nothing_that_the_page_left_prevents_a_restore(
    data: Path, folder: Path, name: str, kind: str
) -> None:
    backup = take(data, folder)
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
    with pytest.raises(BackupError, match="too long for a restore"):
        take(data, folder)


def test_automatic_backups_do_not_remove_those_that_a_person_made(data: Path, folder: Path) -> None:
    own = [take(data, folder) for _ in range(3)]
    automatic = [take(data, folder, f"before page:{number}") for number in range(5)]
    assert sorted(prune(folder, 2)) == sorted([own[0], *automatic[:3]])
    assert {backup["name"] for backup in listed(folder)} == {*own[1:], *automatic[3:]}
