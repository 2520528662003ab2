"""Folders of one run that hold secrets: mode 0700, in memory where possible, removed at the end.

ansible-runner writes the whole environment and the extra variables into its folder, tokens included, and the
generated inventory carries the credentials. A killed process cannot remove its folder, so the next run does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

# A unix socket's path ends at 104 bytes (macOS); ssh appends 17 while it makes the socket.
_LONGEST_BASE = 50
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the folder made in it has mode 0700 and a random name
_NAME = re.compile(r"hf-(\d+)-\w+")
_LOCK = "in-use"


class PrivateDir:
    """Paths inside the folder of one run."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self.root = root
        self.scratch = scratch  # on a disk: for files of gigabytes
        self.progress = root / "progress.jsonl"
        self.control = root / "cp"
        self.collections = root / "collections"
        self.local_temp = root / "tmp"
        self.control.mkdir(mode=0o700)

    def forget_secrets(self, artifact_dir: str) -> None:
        """Delete what Ansible has read by now, so that not even a killed run leaves a secret behind."""
        for path in (self.root / "env" / "cmdline", Path(artifact_dir) / "command"):
            path.unlink(missing_ok=True)

    def close_connections(self) -> None:
        """End the SSH connections that stayed open for reuse."""
        for socket in self.control.iterdir():
            # The host part is not used: the control path names the connection. A dead master is no error.
            subprocess.run(
                ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "headfirst"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=10,
                check=False,
            )


@contextlib.contextmanager
def private_folder(*, on_disk: bool = False) -> Iterator[Path]:
    """A new folder that only this user can read; it is deleted when this closes.

    It is in memory where possible, unless `on_disk`. Folders that killed runs of this user left behind are
    deleted first.
    """
    disk = Path(tempfile.gettempdir())
    for base in {*_bases(), disk}:
        _remove_stale(base)
    root = Path(tempfile.mkdtemp(prefix=f"hf-{os.getpid()}-", dir=disk if on_disk else _bases()[0]))
    # The lock ends with the process, also after SIGKILL: a process id alone may have been given away.
    with (root / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield root
        finally:
            shutil.rmtree(root)


@contextlib.contextmanager
def private_dir() -> Iterator[PrivateDir]:
    """A new folder for ansible-runner; when this closes, its SSH connections end and it is deleted."""
    with private_folder() as root, private_folder(on_disk=True) as scratch:
        private = PrivateDir(root, scratch)
        try:
            yield private
        finally:
            private.close_connections()


def _bases() -> list[Path]:
    """Folders for secrets, best first: gone at logout, gone at reboot, and the temporary folder."""
    temporary = [Path(tempfile.gettempdir()), Path(os.sep, "tmp")]
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    volatile = [Path(runtime)] if runtime and _is_ours(Path(runtime)) else []
    if _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK | os.X_OK):
        volatile.append(_SHARED_MEMORY)
    return [path for path in [*volatile, *temporary] if len(str(path)) <= _LONGEST_BASE]


def _is_ours(folder: Path) -> bool:
    """`sudo` and `su` keep XDG_RUNTIME_DIR of the user who called them."""
    try:
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == stat.S_IRWXU


def _remove_stale(base: Path) -> None:
    for folder in base.glob("hf-*"):
        match = _NAME.fullmatch(folder.name)
        # It was removed meanwhile, or it belongs to somebody else.
        with contextlib.suppress(OSError):
            if match and folder.lstat().st_uid == os.geteuid() and not _runs(int(match.group(1))):
                with (folder / _LOCK).open("a") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user by now
        pass
    return True
