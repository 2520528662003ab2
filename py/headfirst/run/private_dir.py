"""ansible-runner's folder of one run: fresh, mode 0700, gone afterwards.

ansible-runner writes the whole environment and the extra variables into it, tokens included.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

# A unix socket's path ends at 104 bytes (macOS); ssh appends 17 while it makes the socket.
_LONGEST_BASE = 50


class PrivateDir:
    """Paths inside the folder of one run."""

    def __init__(self, root: Path) -> None:
        self.root = root
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
            # The host part is not used: the control path says which connection. A dead master is no error.
            subprocess.run(
                ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "headfirst"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=10,
                check=False,
            )


@contextlib.contextmanager
def private_dir() -> Iterator[PrivateDir]:
    """A fresh folder; when this closes, its SSH connections end and it is deleted."""
    base = tempfile.gettempdir()
    root = Path(tempfile.mkdtemp(prefix="hf-", dir=base if len(base) <= _LONGEST_BASE else os.sep + "tmp"))
    private = PrivateDir(root)
    try:
        yield private
    finally:
        private.close_connections()
        shutil.rmtree(root)
