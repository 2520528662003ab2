"""The machine's settings of apt reach a node; what changes in any setting changes the fingerprint."""

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.control.lab import host_settings
from headfirst.control.machine import apt, packages


def test_only_the_distributions_own_archives_that_a_node_can_reach_are_carried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    targets = """\
deb cdrom:[Debian 12]/ bookworm main|Debian
deb http://archive.example/debian/ bookworm main|Debian
deb http://archive.example/debian/ bookworm main|Debian
deb mirror+file:/etc/apt/mirrors/debian.list bookworm-security main|Debian
deb https://engine.example/linux/debian/ bookworm stable|Docker
"""
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: SimpleNamespace(stdout=targets))
    assert apt.sources() == [
        "deb http://archive.example/debian/ bookworm main",
        "deb mirror+file:/etc/apt/mirrors/debian.list bookworm-security main",
    ]


def test_lists_are_fetched_before_a_machine_without_archives_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: SimpleNamespace(stdout=""))
    monkeypatch.setattr(packages, "apt_get", asked.append)
    with pytest.raises(NotReadyError, match="no Debian or Ubuntu archive"):
        apt.sources()
    assert asked == ["update"]


def test_a_secret_keeps_its_mode_and_owner() -> None:
    data = host_settings.archive({"etc/pip.conf": ("password", 0o600, 1000)})
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        (member,) = tar.getmembers()
        assert (member.name, member.mode, member.uid, member.gid) == ("etc/pip.conf", 0o600, 1000, 1000)


@pytest.fixture
def quiet_apt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(apt, "sources", lambda: ["deb http://archive.example/ bookworm main"])
    monkeypatch.setattr(apt, "acquire", lambda: "")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))


@pytest.mark.usefixtures("quiet_apt")
def test_the_fingerprint_changes_with_a_file_that_a_setting_names(tmp_path: Path) -> None:
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("six<2\n")
    (tmp_path / "pip.conf").write_text(f"[global]\nconstraint = {constraints}\n")
    before = host_settings.collect().fingerprint
    assert host_settings.collect().fingerprint == before
    constraints.write_text("six<3\n")
    assert host_settings.collect().fingerprint != before


@pytest.mark.usefixtures("quiet_apt")
def test_the_archives_carry_the_settings_the_files_and_a_record_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_settings, "as_root", lambda argv: argv)
    monkeypatch.setattr(host_settings, "_PATHS", ())
    (tmp_path / "constraints.txt").write_text("six<2\n")
    (tmp_path / "pip.conf").write_text(f"[global]\nconstraint = {tmp_path}/constraints.txt\n")
    settings = host_settings.collect()
    found = {}
    for data in settings.archives():
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            found |= {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    record = json.loads(found[host_settings.RECORD])
    assert record["fingerprint"] == settings.fingerprint
    assert {"etc/pip.conf", "etc/headfirst-lab/pip/0-constraints.txt"} <= set(record["files"])
    assert found["etc/headfirst-lab/pip/0-constraints.txt"] == b"six<2\n"
