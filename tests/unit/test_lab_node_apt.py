"""apt's settings of this machine work on a node: certificates are copied, local things are left out."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from headfirst.control.lab.node_apt import FOLDER, for_node
from headfirst.control.machine import apt


def test_a_named_certificate_is_copied_and_the_setting_names_the_copy(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("certificate")
    made = for_node(f'Acquire::Check-Date "false";\nAcquire::https::CaInfo "{tmp_path}/ca.pem";\n')
    assert made.conf.splitlines() == [
        'Acquire::Check-Date "false";',
        f'Acquire::https::CaInfo "/{FOLDER}/0-ca.pem";',
    ]
    assert made.files == {f"{FOLDER}/0-ca.pem": b"certificate"}


@pytest.mark.parametrize(
    "line",
    [
        'Acquire::http::Proxy "http://me:secret@127.0.0.1:3142";',
        'Acquire::http::Proxy-Auto-Detect "/usr/local/bin/detect";',
        'Acquire::https::mirror.example::SslKey "/not/there.pem";',
    ],
)
def test_what_only_this_machine_has_is_left_out_and_named_without_passwords(line: str) -> None:
    made = for_node(f'{line}\nAcquire::http::Proxy "http://proxy.example:3128";\n')
    assert made.conf == 'Acquire::http::Proxy "http://proxy.example:3128";\n'
    [said] = made.left_out
    assert said.startswith(f"apt's {line.partition(' ')[0]}: ")
    assert "secret" not in said


def test_a_proxy_of_the_environment_is_apts_unless_apt_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.delenv("https_proxy", raising=False)
    for printed, expected in (
        ("", 'Acquire::http::Proxy "http://proxy.example:3128";\n'),
        ('Acquire::http::Proxy "DIRECT";\n', 'Acquire::http::Proxy "DIRECT";\n'),
    ):
        done = SimpleNamespace(stdout=printed)
        monkeypatch.setattr(subprocess, "run", lambda *a, done=done, **k: done)
        assert apt.acquire().strip() == expected.strip()
