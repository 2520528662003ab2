"""Backups of a chat page: a tar archive each, with a manifest (Python 3.8 or newer, standard library)."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils import page_database
from ansible_collections.headfirst.serving.plugins.module_utils.files_beneath import (
    Parts,
    files_beneath,
    folder_beneath,
    missing_suppressed,
    open_file,
)
from ansible_collections.headfirst.serving.plugins.module_utils.page_database import BackupError

NAME = re.compile(r"\d{8}T\d{6}Z(?:-\d{1,3})?")
MANIFEST = "manifest.json"
_FORMAT = 1
# The reason of a backup that a person asks for.
COMMAND = "command"
# Open WebUI's own databases. What else looks like one is a user's upload, and is copied as it is.
_DATABASES = (("webui.db",), ("vector_db", "chroma.sqlite3"), ("vector_db", "milvus.db"))
_LOGS = frozenset((*path[:-1], path[-1] + end) for path in _DATABASES for end in page_database.LOGS)
# What can be fetched or computed again, and folders of a restore.
_RESTORED, _REPLACED = ".headfirst-restored", ".headfirst-replaced"
_LEFT_OUT = ("cache", _RESTORED, _REPLACED)
_CHUNK = 1 << 20
_MANIFEST_BYTES = 64 << 20

Manifest = t.Dict[str, t.Any]


def take(data: Path, folder: Path, image: str, reason: str) -> t.Optional[str]:
    """Write a backup of the folder `data` into `folder`; return its name, None where there is no data.

    The page may run: its databases are copied as of their last transaction, and no link is followed. `image`
    and `reason` are recorded. Nothing is left where it fails.
    """
    try:
        root = os.open(str(data), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return _take(root, folder, image, reason)
    finally:
        os.close(root)


def _take(root: int, folder: Path, image: str, reason: str) -> t.Optional[str]:
    sizes = dict(files_beneath(root, left_out=_LEFT_OUT))
    files = [path for path in sizes if path not in _LOGS]
    if not files:
        return None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A database is copied twice: once to check it.
    copies = sum(size for path, size in sizes.items() if path in _DATABASES or path in _LOGS)
    _require_space(sum(sizes.values()) + copies, folder)
    name = _new_name(folder)
    with tempfile.TemporaryDirectory(dir=str(folder), prefix=".part-") as scratch:
        part = Path(scratch, "archive")
        descriptor = os.open(str(part), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
                entries = {}
                for path in files:
                    entry = _add(tar, root, path, folder)
                    if entry is not None:
                        entries["/".join(path)] = entry
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
    backups = []
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
        backups.append(entry)
    return backups


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
        _remove(old)
    _require_space(path.stat().st_size, data)
    made.mkdir(mode=0o700)
    try:
        with tarfile.open(str(path)) as tar:
            _extract(tar, made, name)
    except (OSError, tarfile.TarError) as error:
        _remove(made)
        raise BackupError("the backup {} cannot be read: {}".format(name, error)) from error
    except BackupError:
        _remove(made)
        raise
    replaced.mkdir(mode=0o700)
    for child in list(data.iterdir()):
        if child.name not in (_RESTORED, _REPLACED):
            child.rename(replaced / child.name)
    for child in list(made.iterdir()):
        child.rename(data / child.name)
    made.rmdir()
    _remove(replaced)


def _remove(path: Path) -> None:
    """Remove whatever the page left there, at any depth; no link is followed."""
    done = subprocess.run(
        ["rm", "-rf", "--", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    if done.returncode != 0:
        raise BackupError(done.stderr.decode("utf-8", "replace").strip()[:300])


def prune(folder: Path, keep: int, also: str = "") -> t.List[str]:
    """Remove all but the `keep` newest backups and the one named `also`; return what was removed.

    Those that a person made (reason COMMAND) and automatic ones are counted apart.
    """
    backups = listed(folder)
    manual = [backup["name"] for backup in backups if backup.get("reason") == COMMAND]
    automatic = [backup["name"] for backup in backups if backup.get("reason") != COMMAND]
    old = [name for name in manual[keep:] + automatic[keep:] if name != also]
    for name in old:
        _archive(folder, name).unlink()
    return old


def _names(folder: Path) -> t.List[str]:
    names = [path.name[: -len(".tar")] for path in folder.glob("*.tar")]

    def age(name: str) -> t.Tuple[str, int]:
        made, _dash, number = name.partition("-")
        return made, int(number or 0)

    return sorted((name for name in names if NAME.fullmatch(name)), key=age, reverse=True)


def _archive(folder: Path, name: str) -> Path:
    return folder / (name + ".tar")


def _new_name(folder: Path) -> str:
    first = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name, number = first, 0
    while _archive(folder, name).exists():
        number += 1
        name = "{}-{}".format(first, number)
    return name


def _require_space(needed_bytes: int, folder: Path) -> None:
    free = shutil.disk_usage(str(folder)).free
    if free < needed_bytes * 1.05:
        raise BackupError(
            "{} has {:.0f} MB free, and {:.0f} MB are needed".format(folder, free / 1e6, needed_bytes / 1e6)
        )


def _add(tar: tarfile.TarFile, root: int, path: Parts, folder: Path) -> t.Optional[Manifest]:
    """Add one file; return its size and hash, None where it was removed meanwhile."""
    name = "/".join(path)
    with missing_suppressed(), folder_beneath(root, path[:-1]) as parent:
        file = open_file(parent, path[-1])
        if file is not None:
            with file:
                status = os.fstat(file.fileno())
                magic = os.pread(file.fileno(), len(page_database.MAGIC), 0)
                if path not in _DATABASES or magic != page_database.MAGIC:
                    return _add_open(tar, name, file, status)
                with tempfile.TemporaryDirectory(dir=str(folder), prefix=".part-") as scratch:
                    whole = page_database.snapshot(parent, path[-1], file, Path(scratch))
                    with whole.open("rb") as copy:
                        return _add_open(tar, name, copy, status)
    if path in _DATABASES:
        raise BackupError("the database {} was replaced while it was copied".format(name))
    return None


def _add_open(tar: tarfile.TarFile, name: str, file: t.IO[bytes], status: os.stat_result) -> Manifest:
    size = os.fstat(file.fileno()).st_size
    info = _header(name, size)
    info.mode, info.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
    info.uid, info.gid = status.st_uid, status.st_gid
    reader = _Hashing(file)
    tar.addfile(info, reader)  # type: ignore[arg-type]  # it needs read() only
    return {"size": size, "sha256": reader.digest.hexdigest()}


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
        manifest = json.loads(file.read()) if file else None
    except ValueError:
        manifest = None
    texts = isinstance(manifest, dict) and all(
        isinstance(manifest.get(key), str) for key in ("time", "image", "reason")
    )
    if not texts or manifest.get("format") != _FORMAT or not isinstance(manifest.get("files"), dict):
        raise BackupError("its manifest is not of the format {}".format(_FORMAT))
    return t.cast(Manifest, manifest)


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
