"""Backups of a chat page: a tar archive each, with a manifest (Python 3.8 or newer, standard library)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils.page_copy import (
    FORMAT,
    FREE,
    MANIFEST,
    REPLACED,
    RESTORED,
    Hashing,
)

NAME = re.compile(r"\d{8}T\d{6}Z(?:-\d{1,3})?")
# The reason of a backup that a person asks for.
COMMAND = "command"
_CHUNK = 1 << 20
_MANIFEST_BYTES = 64 << 20
_MESSAGE = 300

Manifest = t.Dict[str, t.Any]
Pieces = t.Generator[t.Tuple[t.Optional[bytes], t.Optional[bytes]], None, None]
Copied = t.Callable[[t.List[str]], Pieces]
"""What the program page_copy with these arguments writes, as pieces of its output and of its errors."""


class BackupError(Exception):
    """Why a backup cannot be made or used, as one sentence without a full stop."""


def take(folder: Path, image: str, reason: str, copied: Copied) -> t.Optional[str]:
    """Write a backup into `folder`; return its name, None where there is no data.

    `image` and `reason` are recorded. Nothing is left where it fails.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    free = int(shutil.disk_usage(str(folder)).free / 1.05)
    name, message = _new_name(folder), b""
    with tempfile.TemporaryDirectory(dir=str(folder), prefix=".part-") as scratch:
        part = Path(scratch, "archive")
        descriptor = os.open(str(part), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            with contextlib.closing(copied([str(free), image, reason])) as pieces:
                for written, words in pieces:
                    out.write(written or b"")
                    message = (message + (words or b""))[-_MESSAGE:]
                    if out.tell() > free:
                        raise BackupError("{} is full".format(folder))
            out.flush()
            os.fsync(out.fileno())
        try:
            with tarfile.open(str(part)) as tar:
                if not _manifest(tar)["files"]:
                    return None
        except (BackupError, tarfile.TarError):
            line = message.decode("utf-8", "replace").strip().rpartition("\n")[2]
            shown = "".join(char for char in line if char.isprintable())
            raise BackupError(shown or "the program that copies was ended, or took too long") from None
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
    restored, replaced = data / RESTORED, data / REPLACED
    for old in (restored, replaced):
        _remove(old)
    restored.mkdir(mode=0o700)
    try:
        with tarfile.open(str(path)) as tar:
            needed, free = sum(member.size for member in tar.getmembers()), shutil.disk_usage(str(data)).free
            if free < needed * 1.05:
                raise BackupError(FREE.format(free / 1e6, needed / 1e6))
            _extract(tar, restored, name)
    except (OSError, tarfile.TarError) as error:
        _remove(restored)
        raise BackupError("the backup {} cannot be read: {}".format(name, error)) from error
    except BackupError:
        _remove(restored)
        raise
    replaced.mkdir(mode=0o700)
    for child in list(data.iterdir()):
        if child.name not in (RESTORED, REPLACED):
            child.rename(replaced / child.name)
    for child in list(restored.iterdir()):
        child.rename(data / child.name)
    restored.rmdir()
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
        date, _dash, number = name.partition("-")
        return date, int(number or 0)

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
    if not texts or manifest.get("format") != FORMAT or not isinstance(manifest.get("files"), dict):
        raise BackupError("its manifest is not of the format {}".format(FORMAT))
    return t.cast(Manifest, manifest)


def _extract(tar: tarfile.TarFile, target: Path, name: str) -> None:
    files = _manifest(tar)["files"]
    tar.extraction_filter = lambda member, path: member  # owners stay, also with Python 3.14
    seen = set()
    for member in tar.getmembers()[:-1]:
        parts = member.name.split("/")
        if not member.isreg() or member.name not in files or any(part in ("", ".", "..") for part in parts):
            raise BackupError("the backup {} has {!r}, which its manifest does not".format(name, member.name))
        reader = Hashing(t.cast(t.IO[bytes], tar.extractfile(member)))
        while reader.read(_CHUNK):
            pass
        entry = files[member.name]
        if not isinstance(entry, dict) or reader.digest.hexdigest() != entry.get("sha256"):
            raise BackupError("{} in the backup {} differs from what was saved".format(member.name, name))
        member.mode &= 0o777
        tar.extract(member, str(target), numeric_owner=True)
        seen.add(member.name)
    missing = sorted(set(files) - seen)
    if missing:
        raise BackupError("the backup {} lacks {}".format(name, missing[0]))
    os.sync()
