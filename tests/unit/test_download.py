"""Action download: what a host sends is bounded by what it stated, by what is expected, and by the disk."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.headfirst.serving.plugins.action import download

ROOT = Path(__file__).resolve().parents[2]
Usage = namedtuple("Usage", "total used free")


def shell(command: str, in_data: bytes | None = None) -> dict[str, Any]:
    """A host that is this machine."""
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    return {"rc": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def bring(
    source: Path, dest: Path, most: int = 1 << 20, host: Callable[..., dict[str, Any]] = shell
) -> dict[str, Any]:
    action = object.__new__(download.ActionModule)
    arguments = {"src": str(source), "dest": str(dest), "max_bytes": most}
    action._task = SimpleNamespace(args=arguments, check_mode=False, async_val=0, action="download")
    action._connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=str(dest.parent)))
    action._low_level_execute_command = host
    return action.run(None, {"inventory_hostname": "node1"})


def test_a_file_arrives_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download.upload, "CHUNK", 1000)
    content = os.urandom(4500)
    (tmp_path / "it's").write_bytes(content)
    assert bring(tmp_path / "it's", tmp_path / "copy")["size"] == 4500
    assert (tmp_path / "copy").read_bytes() == content


@pytest.mark.parametrize("size", [101, -1, 10**17])
def test_more_than_is_expected_is_not_begun(tmp_path: Path, size: int) -> None:
    def host(command: str, **_: Any) -> dict[str, Any]:
        assert command.startswith("stat ")
        return {"rc": 0, "stdout": str(size), "stderr": ""}

    with pytest.raises(AnsibleActionFail, match=f"node1 reports {size} bytes"):
        bring(tmp_path / "a", tmp_path / "copy", 100, host)
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("sent", [b"x" * 11, b"x" * 9, b"x" * 10_000_000])
def test_a_host_that_sends_another_number_of_bytes_ends_the_transfer(tmp_path: Path, sent: bytes) -> None:
    def host(command: str, **_: Any) -> dict[str, Any]:
        answer = "10" if command.startswith("stat ") else base64.b64encode(sent).decode()
        return {"rc": 0, "stdout": answer, "stderr": ""}

    with pytest.raises(AnsibleActionFail, match="another number of bytes"):
        bring(tmp_path / "a", tmp_path / "copy", 100, host)
    assert (tmp_path / "copy").stat().st_size == 0


def test_the_disk_keeps_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"x" * 1000)
    free = download.LEFT_FREE + 999
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 40, 0, free))
    with pytest.raises(AnsibleActionFail, match=f"has {free} free.*Set TMPDIR"):
        bring(tmp_path / "a", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_no_role_writes_what_a_host_sends_without_bounds() -> None:
    tasks = [*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/**/*.yml")]
    assert len(tasks) > 100
    unbounded = ("ansible.builtin.fetch:", "ansible.posix.synchronize:")
    assert [path.name for path in tasks if any(name in path.read_text() for name in unbounded)] == []
