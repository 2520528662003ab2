"""Folders with secrets: not in the temporary folder, and removed after a killed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from headfirst.control.run import private_dir
from headfirst.control.run.private_dir import private_folder

HOLDER = """
import sys, time
from headfirst.control.run.private_dir import private_folder
with private_folder() as folder:
    (folder / "plan.yml").write_text("a secret")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """XDG_RUNTIME_DIR of a login, with a short path as in life."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


def holder() -> tuple[subprocess.Popen[str], Path]:
    """A process that holds a folder, and the folder."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert child.stdout
    return child, Path(child.stdout.readline().strip())


def end(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=10)


def test_a_killed_run_leaves_nothing_in_the_temporary_folder_and_the_next_one_removes_the_rest(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    child, folder = holder()
    assert folder.parent == runtime
    assert folder.stat().st_mode & 0o777 == 0o700
    end(child)
    assert (folder / "plan.yml").exists()
    assert list(tmp_path.iterdir()) == []
    with private_folder():
        assert not folder.exists()
    assert list(runtime.iterdir()) == []


@pytest.mark.parametrize("seen", [True, False], ids=["here", "in another namespace of process ids"])
def test_the_folder_of_a_run_that_lives_stays(
    runtime: Path, monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    child, folder = holder()
    if not seen:
        monkeypatch.setattr(private_dir, "_runs", lambda pid: False)
    try:
        with private_folder():
            assert (folder / "plan.yml").exists()
    finally:
        end(child)


def test_a_stale_folder_in_the_temporary_folder_goes_too(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        child = subprocess.Popen(["true"])
        child.wait()
        stale = Path(temporary) / f"hf-{child.pid}-abc"
        other = Path(temporary) / "hf-notes"
        stale.mkdir()
        other.mkdir()
        with private_folder():
            assert not stale.exists()
            assert other.exists()


def test_a_runtime_folder_that_others_can_read_is_not_used(runtime: Path) -> None:
    runtime.chmod(0o755)
    with private_folder() as folder:
        assert folder.parent != runtime


def test_without_a_login_the_folder_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with private_folder() as folder:
        assert folder.parent == Path("/dev/shm")
