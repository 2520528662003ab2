"""Backups of a chat page: a tar archive each, with a manifest (Python 3.8 or newer, standard library)."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import sqlite3
import stat
import tarfile
import tempfile
import time
import typing as t
from pathlib import Path

NAME = re.compile(r"\d{8}T\d{6}Z(?:-\d{1,3})?")
MANIFEST = "manifest.json"
_FORMAT = 1
_SQLITE = b"SQLite format 3\0"
# Belong to a database that is copied as a whole.
_JOURNALS = ("-wal", "-shm", "-journal")
# What can be fetched or computed again, and folders of a restore.
_RESTORED, _REPLACED = ".headfirst-restored", ".headfirst-replaced"
_LEFT_OUT = ("cache", _RESTORED, _REPLACED)
_CHUNK = 1 << 20
_MANIFEST_BYTES = 64 << 20

Manifest = t.Dict[str, t.Any]


class BackupError(Exception):
    """Why a backup cannot be made or used, as one sentence without a full stop."""


def take(data: Path, folder: Path, image: str, reason: str) -> t.Optional[str]:
    """Write a backup of the folder `data` into `folder`; return its name, None where there is no data.

    Databases of SQLite are copied through its online backup, so the page may run. `image` and `reason` are
    recorded. Nothing is left where it fails.
    """
    files = list(_files(data))
    if not files:
        return None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_space(sum(_size(path) for path in files), folder)
    name = _new_name(folder)
    with tempfile.TemporaryDirectory(dir=str(folder), prefix=".part-") as scratch:
        part = Path(scratch, "archive")
        descriptor = os.open(str(part), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
                entries = {}
                for path in files:
                    entry = _add(tar, data, path, Path(scratch))
                    if entry is not None:
                        entries[str(path.relative_to(data))] = entry
                manifest = {
                    "format": _FORMAT,
                    "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                    "image": image,
                    "reason": reason,
                    "files": entries,
                }
                text = json.dumps(manifest, indent=1, sort_keys=True).encode()
                tar.addfile(_header(MANIFEST, len(text)), io.BytesIO(text))
            out.flush()
            os.fsync(out.fileno())
        part.replace(_archive(folder, name))
    return name


def listed(folder: Path) -> t.List[t.Dict[str, t.Any]]:
    """Return the backups in `folder`, the newest first: name, bytes, files, time, image, reason, problem."""
    found = []
    for name in _names(folder):
        path = _archive(folder, name)
        entry: t.Dict[str, t.Any] = {"name": name, "bytes": path.stat().st_size, "problem": ""}
        try:
            with tarfile.open(str(path)) as tar:
                manifest = _manifest(tar)
            entry.update({key: manifest[key] for key in ("time", "image", "reason")})
            entry["files"] = len(manifest["files"])
        except BackupError as error:
            entry["problem"] = str(error)
        except (OSError, tarfile.TarError) as error:
            entry["problem"] = "it cannot be read: {}".format(error)
        found.append(entry)
    return found


def restore(data: Path, folder: Path, name: str) -> None:
    """Replace what is in the folder `data` by a backup, after every file of it has been verified.

    The folder itself stays, since a container mounts it; nothing may use it meanwhile.
    """
    path = _archive(folder, name)
    if not NAME.fullmatch(name) or not path.exists():
        names = ", ".join(_names(folder)) or "none"
        raise BackupError("there is no backup {}; there are: {}".format(name, names))
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    made, replaced = data / _RESTORED, data / _REPLACED
    for old in (made, replaced):
        shutil.rmtree(str(old), ignore_errors=True)
    _require_space(path.stat().st_size, data)
    made.mkdir(mode=0o700)
    try:
        with tarfile.open(str(path)) as tar:
            _extract(tar, made, name)
    except (OSError, tarfile.TarError) as error:
        shutil.rmtree(str(made), ignore_errors=True)
        raise BackupError("the backup {} cannot be read: {}".format(name, error)) from error
    except BackupError:
        shutil.rmtree(str(made), ignore_errors=True)
        raise
    replaced.mkdir(mode=0o700)
    for child in list(data.iterdir()):
        if child.name not in (_RESTORED, _REPLACED):
            child.rename(replaced / child.name)
    for child in list(made.iterdir()):
        child.rename(data / child.name)
    made.rmdir()
    shutil.rmtree(str(replaced))


def prune(folder: Path, keep: int, also: str = "") -> t.List[str]:
    """Remove all but the `keep` newest backups and the one named `also`; return what was removed."""
    old = [name for name in _names(folder)[keep:] if name != also]
    for name in old:
        _archive(folder, name).unlink()
    return old


def _names(folder: Path) -> t.List[str]:
    found = [path.name[: -len(".tar")] for path in folder.glob("*.tar")]

    def age(name: str) -> t.Tuple[str, int]:
        made, _dash, number = name.partition("-")
        return made, int(number or 0)

    return sorted((name for name in found if NAME.fullmatch(name)), key=age, reverse=True)


def _archive(folder: Path, name: str) -> Path:
    return folder / (name + ".tar")


def _new_name(folder: Path) -> str:
    first = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name, number = first, 0
    while _archive(folder, name).exists():
        number += 1
        name = "{}-{}".format(first, number)
    return name


def _files(data: Path) -> t.Iterator[Path]:
    """Regular files to keep; links are not followed."""
    for top, folders, names in os.walk(str(data)):
        if Path(top) == data:
            folders[:] = [folder for folder in folders if folder not in _LEFT_OUT]
        for name in sorted(names):
            path = Path(top, name)
            if not name.endswith(_JOURNALS) and stat.S_ISREG(path.lstat().st_mode):
                yield path


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _require_space(wanted: int, folder: Path) -> None:
    free = shutil.disk_usage(str(folder)).free
    if free < wanted * 1.05:
        raise BackupError(
            "{} has {:.0f} MB free, and {:.0f} MB are needed".format(folder, free / 1e6, wanted / 1e6)
        )


def _add(tar: tarfile.TarFile, data: Path, path: Path, scratch: Path) -> t.Optional[Manifest]:
    """Add one file; return its size and hash, None where it was removed meanwhile."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if file.read(len(_SQLITE)) == _SQLITE:
                with _snapshot(path, scratch).open("rb") as copy:
                    return _add_open(tar, data, path, copy, status)
            file.seek(0)
            return _add_open(tar, data, path, file, status)
    except FileNotFoundError:
        return None


def _add_open(
    tar: tarfile.TarFile, data: Path, path: Path, file: t.IO[bytes], status: os.stat_result
) -> Manifest:
    size = os.fstat(file.fileno()).st_size
    info = _header(str(path.relative_to(data)), size)
    info.mode, info.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
    info.uid, info.gid = status.st_uid, status.st_gid
    reader = _Hashing(file)
    tar.addfile(info, reader)  # type: ignore[arg-type]  # it needs read() only
    return {"size": size, "sha256": reader.digest.hexdigest()}


def _snapshot(path: Path, scratch: Path) -> Path:
    """A copy of a database as it is between two transactions; it is checked."""
    target = scratch / "snapshot"
    if target.exists():
        target.unlink()
    os.close(os.open(str(target), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    source = sqlite3.connect("file:{}?mode=rw".format(_quoted(path)), uri=True, timeout=30)
    copy = sqlite3.connect(str(target))
    try:
        source.backup(copy, pages=4096)
        (answer,) = copy.execute("PRAGMA quick_check").fetchone()
    except sqlite3.Error as error:
        raise BackupError("the database {} cannot be copied: {}".format(path, error)) from error
    finally:
        copy.close()
        source.close()
    if answer != "ok":
        raise BackupError("the database {} is damaged: {}".format(path, answer))
    return target


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


class _Hashing:
    """Reads a file and hashes what is read."""

    def __init__(self, file: t.IO[bytes]) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data


def _header(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    return info


def _manifest(tar: tarfile.TarFile) -> Manifest:
    """The manifest, with each value of the type that is written."""
    members = tar.getmembers()
    last = members[-1] if members else None
    if last is None or last.name != MANIFEST or not last.isreg() or last.size > _MANIFEST_BYTES:
        raise BackupError("it has no manifest: the backup is not complete")
    file = tar.extractfile(last)
    try:
        found = json.loads(file.read()) if file else None
    except ValueError:
        found = None
    texts = isinstance(found, dict) and all(
        isinstance(found.get(key), str) for key in ("time", "image", "reason")
    )
    if not texts or found.get("format") != _FORMAT or not isinstance(found.get("files"), dict):
        raise BackupError("its manifest is not of the format {}".format(_FORMAT))
    return t.cast(Manifest, found)


def _extract(tar: tarfile.TarFile, target: Path, name: str) -> None:
    files = _manifest(tar)["files"]
    seen = set()
    for member in tar.getmembers()[:-1]:
        parts = member.name.split("/")
        if not member.isreg() or member.name not in files or any(part in ("", ".", "..") for part in parts):
            raise BackupError("the backup {} has {!r}, which its manifest does not".format(name, member.name))
        path = target.joinpath(*parts)
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _copy(t.cast(t.IO[bytes], tar.extractfile(member)), path, member, files[member.name], name)
        seen.add(member.name)
    missing = sorted(set(files) - seen)
    if missing:
        raise BackupError("the backup {} lacks {}".format(name, missing[0]))


def _copy(source: t.IO[bytes], path: Path, member: tarfile.TarInfo, entry: t.Any, name: str) -> None:
    reader = _Hashing(source)
    with path.open("xb") as out:
        os.fchmod(out.fileno(), member.mode & 0o777)
        if os.geteuid() == 0:
            os.fchown(out.fileno(), member.uid, member.gid)
        while True:
            part = reader.read(_CHUNK)
            if not part:
                break
            out.write(part)
        out.flush()
        os.fsync(out.fileno())
    os.utime(str(path), (member.mtime, member.mtime))
    if not isinstance(entry, dict) or reader.digest.hexdigest() != entry.get("sha256"):
        raise BackupError("{} in the backup {} differs from what was saved".format(member.name, name))
