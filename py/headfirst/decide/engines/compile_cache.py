"""What a rank starts with of what was compiled before: `compile_cache.py COMMAND…`, in the engine's image.

The folder that the engine writes into is emptied first: what a rank left there that was killed is never used.
"""

import hashlib
import os
import shutil
import sys
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any

KEPT, LIVE = Path("/var/cache/headfirst/kept"), Path("/var/cache/headfirst/live")
ARCHIVE, PROVEN, HEADER_BYTES = "compiled.safetensors", ".headfirst/proven", 120


class Hashed:
    """A file that is read once, from start to end, with the SHA-256 of what was read."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.sha256 = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """The next bytes."""
        data = self._file.read(size)
        self.sha256.update(data)
        return data


def empty(folder: Path) -> None:
    """Remove what is in a folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def extract(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Extract a file, with its time, by which compilers tell what is old. ValueError where it is no file.

    The filter `data` of tarfile is not in each Python that an image may have.
    """
    name, content = PurePosixPath(member.name), archive.extractfile(member)
    if content is None or not member.isreg() or name.is_absolute() or ".." in name.parts:
        raise ValueError(f"{ARCHIVE} has an entry that is no file: {name}")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        shutil.copyfileobj(content, file)
    path.chmod(member.mode & 0o700)
    os.utime(path, (member.mtime, member.mtime))


def restore(kept: Path, live: Path) -> None:
    """Extract what was kept and proven. Raises ValueError where it is not what was proven."""
    proven = kept / PROVEN
    if not proven.is_file():
        return
    file: Any = Hashed(kept / ARCHIVE)
    header_bytes = int.from_bytes(file.read(8), "little")
    if header_bytes > HEADER_BYTES:
        raise ValueError(f"{ARCHIVE} does not begin as it was written")
    file.read(header_bytes)  # of the one tensor, which is the archive
    with tarfile.open(fileobj=file, mode="r|") as archive:
        for member in archive:
            extract(archive, member, live)
    while file.read(1 << 20):
        pass
    if file.sha256.hexdigest() != proven.read_text(encoding="utf-8").split()[0]:
        raise ValueError(f"{ARCHIVE} is not what was proven")


def without(live: Path, beginning: str = "") -> None:
    """Leave the caches to the container itself; `beginning`: of the names of their variables."""
    for name, value in dict(os.environ).items():
        if value.startswith(f"{live}/") and name.startswith(beginning):
            del os.environ[name]


def prepare() -> None:
    """Have the engine compile into an empty folder, or into one with what was compiled before."""
    if (Path.home() / ".cache" / "flashinfer").is_dir():  # of the image: kernels that would be downloaded
        without(LIVE, "FLASHINFER_")
    if not os.access(LIVE, os.W_OK | os.X_OK):  # the image has another user than root
        without(LIVE)
        return
    try:
        empty(LIVE)
        restore(KEPT, LIVE)
    except (OSError, EOFError, ValueError, tarfile.TarError) as error:
        print(f"What was compiled before is not used: {error}", file=sys.stderr, flush=True)
        try:
            empty(LIVE)
        except OSError:
            without(LIVE)


if __name__ == "__main__":
    prepare()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - the engine's command
