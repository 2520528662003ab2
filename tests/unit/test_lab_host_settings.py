"""The machine's pip and apt settings reach a node whole, and without what only the machine can see."""

import configparser
import io
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from headfirst.errors import NotReadyError
from headfirst.lab import host_settings, packages


def parsed(text: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    return parser


def test_a_variable_outranks_every_section_of_the_files(tmp_path: Path) -> None:
    system, user = tmp_path / "system.conf", tmp_path / "user.conf"
    system.write_text("[global]\nindex-url = https://system.example/simple\ntimeout = 10\n")
    user.write_text("[global]\ntimeout = 20\n[install]\nindex-url = https://user.example/simple\n")
    environment = {"PIP_INDEX_URL": "https://variable.example/simple", "HOME": "/root"}
    conf = parsed(host_settings.pip_conf([system, user], environment))
    assert dict(conf["global"]) == {"index-url": "https://variable.example/simple", "timeout": "20"}
    assert "index-url" not in conf["install"]


def test_folders_of_this_machine_are_left_out(tmp_path: Path) -> None:
    user = tmp_path / "pip.conf"
    user.write_text(
        "[global]\nfind-links = /opt/wheels\nextra-index-url = file:///srv/simple https://mirror.example/simple\n"
    )
    conf = parsed(host_settings.pip_conf([user], {"PIP_CERT": "/etc/ssl/certs/ca-certificates.crt"}))
    assert dict(conf["global"]) == {
        "extra-index-url": "https://mirror.example/simple",
        "cert": "/etc/ssl/certs/ca-certificates.crt",
    }


def test_no_settings_make_no_file(tmp_path: Path) -> None:
    local_only = tmp_path / "pip.conf"
    local_only.write_text("[global]\nfind-links = /opt/wheels\n")
    assert host_settings.pip_conf([tmp_path / "absent.conf"], {"PIP_CONFIG_FILE": "/x"}) == ""
    assert host_settings.pip_conf([local_only], {}) == ""


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
    assert host_settings.apt_sources() == [
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
        host_settings.apt_sources()
    assert asked == ["update"]


def test_a_secret_keeps_its_mode_and_owner() -> None:
    data = host_settings.archive({"etc/pip.conf": ("password", 0o600)}, uid=1000)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        (member,) = tar.getmembers()
        assert (member.name, member.mode, member.uid, member.gid) == ("etc/pip.conf", 0o600, 1000, 1000)
