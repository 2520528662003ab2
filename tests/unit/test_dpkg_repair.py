"""A dpkg that was killed in the middle, with the real dpkg below a folder; and the one way roles use apt."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.headfirst.serving.plugins.modules import dpkg_repair

ROLES = Path(__file__).resolve().parents[2] / "roles"
needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg")
# Kills the dpkg that configures it, once.
KILLS = """#!/bin/sh
if [ ! -e {folder}/killed ]; then touch {folder}/killed; kill -9 $PPID; fi
exit {status}
"""


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty system of packages that dpkg_repair takes for the host's."""
    admin = tmp_path / "root" / "var" / "lib" / "dpkg"
    (admin / "updates").mkdir(parents=True)
    (admin / "info").mkdir()
    (admin / "status").touch()
    forced = ["--force-not-root", "--force-script-chrootless", "--force-bad-path", "--force-architecture"]
    options = [*forced, f"--root={tmp_path / 'root'}", f"--log={tmp_path / 'log'}"]
    monkeypatch.setattr(dpkg_repair, "DPKG", ["dpkg", *options])
    monkeypatch.setattr(dpkg_repair, "ADMIN", str(admin))
    return tmp_path


def interrupt(folder: Path, status: int = 0) -> None:
    """Install a package whose script kills dpkg; when it runs again it ends with `status`."""
    control = folder / "package" / "DEBIAN"
    control.mkdir(parents=True)
    fields = "Package: fixture\nVersion: 1\nArchitecture: all\nMaintainer: Fixture\nDescription: fixture\n"
    (control / "control").write_text(fields)
    (control / "postinst").write_text(KILLS.format(folder=folder, status=status))
    (control / "postinst").chmod(0o755)
    deb = str(folder / "fixture.deb")
    subprocess.run(["dpkg-deb", "--build", str(folder / "package"), deb], check=True, capture_output=True)
    done = subprocess.run([*dpkg_repair.DPKG, "--install", deb], check=False, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr


def run(capsys: pytest.CaptureFixture[str], **arguments: Any) -> dict[str, Any]:
    with patch_module_args(arguments), pytest.raises(SystemExit):
        dpkg_repair.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@needs_dpkg
def test_an_interrupted_dpkg_is_repaired_once(system: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interrupt(system)
    assert "fixture" in dpkg_repair.unfinished()
    planned = run(capsys, _ansible_check_mode=True)
    assert planned["changed"] and "fixture" in dpkg_repair.unfinished()
    assert run(capsys)["changed"] is True
    assert dpkg_repair.unfinished() == ""
    assert run(capsys) == {"changed": False, "found": "", "invocation": {"module_args": {"seconds": 300}}}


@needs_dpkg
def test_what_cannot_be_repaired_is_named(system: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interrupt(system, status=7)
    result = run(capsys)
    assert result["failed"]
    assert re.search("`dpkg --configure -a` fails: .*fixture.*exit status 7", result["msg"])


@needs_dpkg
def test_a_journal_alone_is_unfinished_work(system: Path) -> None:
    (Path(dpkg_repair.ADMIN) / "updates" / "tmp.i").touch()
    assert dpkg_repair.unfinished() == ""
    (Path(dpkg_repair.ADMIN) / "updates" / "0000").touch()
    assert dpkg_repair.unfinished() == "dpkg was interrupted"


@needs_dpkg
def test_another_program_that_keeps_the_lock_is_reported(
    system: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(dpkg_repair.ADMIN) / "lock-frontend"
    path.touch()
    holding, told = os.pipe(), os.pipe()
    if (child := os.fork()) == 0:  # a lock of this very process would not be in its own way
        with path.open("w") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            os.write(holding[1], b".")
            os.read(told[0], 1)
        os._exit(0)
    os.read(holding[0], 1)
    try:
        result = run(capsys, seconds=0)
    finally:
        os.write(told[1], b".")
        os.waitpid(child, 0)
    assert result["failed"] and "Another program has used dpkg for 0 seconds" in result["msg"]
    assert run(capsys, seconds=60)["changed"] is False


def test_no_role_uses_apt_past_the_repair() -> None:
    tasks = {path: path.read_text() for path in ROLES.glob("*/*/*.yml")}
    assert not [
        str(path) for path, text in tasks.items() if re.search(r"ansible\.builtin\.(apt|package):", text)
    ]
    assert sum("headfirst.serving.apt:" in text for text in tasks.values()) > 5
