"""The machine's pip and apt settings reach a node whole, and without what only the machine can see."""

import configparser
import io
import tarfile
from pathlib import Path

from headfirst.lab import host_settings


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


def test_a_secret_keeps_its_mode_and_owner() -> None:
    data = host_settings.archive({"etc/pip.conf": ("password", 0o600)}, uid=1000)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        (member,) = tar.getmembers()
        assert (member.name, member.mode, member.uid, member.gid) == ("etc/pip.conf", 0o600, 1000, 1000)
