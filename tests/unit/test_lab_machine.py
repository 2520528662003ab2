"""What the lab reads of this machine: capabilities, routes, root, packages."""

import ipaddress
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.control.lab import network, nodes
from headfirst.control.machine import packages, sudo

ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
"""


def test_a_full_bounding_set_gives_all_but_what_is_the_hosts() -> None:
    given = nodes.available("Name:\tx\nCapBnd:\t000001ffffffffff\n")
    assert len(given) == 36
    assert {"SYS_ADMIN", "NET_ADMIN", "SYS_RESOURCE", "AUDIT_READ"} <= set(given)
    assert not {"SYS_MODULE", "SYS_TIME"} & set(given)


def test_a_capability_outside_the_bounding_set_is_not_asked_for() -> None:
    without_sys_resource = "CapEff:\t0\nCapBnd:\t000001fffeffffff\nCapAmb:\t0\n"
    given = nodes.available(without_sys_resource)
    assert "SYS_RESOURCE" not in given
    assert len(given) == 35


def test_routes_are_networks_without_the_default_one() -> None:
    assert network.routes(ROUTES) == [
        ("eth0", ipaddress.IPv4Network("192.0.2.0/24")),
        ("docker0", ipaddress.IPv4Network("172.17.0.0/16")),
    ]


def test_root_needs_no_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert sudo.as_root(["id"]) == ["id"]


def test_no_root_and_no_sudo_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda command: None)
    with pytest.raises(NotReadyError, match="no sudo"):
        sudo.as_root(["id"])


@pytest.mark.parametrize(("granted", "prefix"), [(True, ["sudo", "-n"]), (False, None)])
def test_sudo_is_used_without_a_password_or_refused_off_a_terminal(
    monkeypatch: pytest.MonkeyPatch, granted: bool, prefix: list[str] | None
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda command: "/usr/bin/sudo")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False))
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: SimpleNamespace(returncode=0 if granted else 1))
    if prefix:
        assert sudo.as_root(["id"]) == [*prefix, "id"]
    else:
        with pytest.raises(NotReadyError, match="sudo -v"):
            sudo.as_root(["id"])


def test_all_missing_packages_are_named_once_and_an_engine_of_another_origin_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    present = {"dockerd", "ssh", "apparmor_parser"}
    monkeypatch.setattr(shutil, "which", lambda command, path: command if command in present else None)
    monkeypatch.setattr(packages.Path, "exists", lambda path: False)
    wanted = (*packages.FOR_LAB, *packages.FOR_IMAGES)
    assert packages.missing(wanted) == ["debian-archive-keyring", "mmdebstrap", "openssh-client"]
    present |= {"mmdebstrap", "ssh-keygen"}
    assert packages.missing(packages.FOR_LAB) == []


class AptGet:
    """Stands for apt-get: prints `lines`, ends with `returncode`."""

    def __init__(self, lines: str, returncode: int) -> None:
        self._lines, self._returncode = lines, returncode
        self.asked: list[list[str]] = []

    def __call__(self, argv: list[str], **options: object) -> "AptGet":
        self.asked.append(argv)
        self.stdout, self.returncode = self._lines.splitlines(keepends=True), self._returncode
        return self

    def __enter__(self) -> "AptGet":
        return self

    def __exit__(self, *error: object) -> None:
        pass


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda command: command)


@pytest.mark.usefixtures("root")
def test_packages_are_installed_in_one_call_with_percentages(monkeypatch: pytest.MonkeyPatch) -> None:
    apt = AptGet("dlstatus:1:50:Retrieving\nSelecting previously\npmstatus:docker.io:80.0:Unpacking\n", 0)
    monkeypatch.setattr(subprocess, "Popen", apt)
    seen: list[tuple[str, int]] = []
    packages.install(["docker.io", "mmdebstrap"], lambda what, done, total: seen.append((what, done)))
    installs = [argv for argv in apt.asked if "install" in argv]
    assert len(installs) == 1
    assert installs[0][-2:] == ["docker.io", "mmdebstrap"]
    assert [done for _, done in seen] == [0, 25, 90, 100]
    assert "docker.io, mmdebstrap" in seen[0][0]
    assert "usually" in seen[0][0]


@pytest.mark.usefixtures("root")
def test_a_failing_apt_get_is_reported_with_its_last_lines_and_all_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = "\n".join(f"line {number}" for number in range(20))
    monkeypatch.setattr(subprocess, "Popen", AptGet(lines, 100))
    with pytest.raises(NotReadyError, match="line 19") as failed:
        packages.install(["docker.io", "mmdebstrap"], lambda what, done, total: None)
    assert "line 5\n" not in str(failed.value)
    assert "lacks docker.io, mmdebstrap" in failed.value.what
    assert "apt-get install docker.io mmdebstrap" in (failed.value.hint or "")


def test_without_root_all_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda command: "/usr/bin/apt-get" if command == "apt-get" else None)
    with pytest.raises(NotReadyError, match=r"lacks docker\.io, mmdebstrap.*no sudo"):
        packages.install(["docker.io", "mmdebstrap"], lambda what, done, total: None)
