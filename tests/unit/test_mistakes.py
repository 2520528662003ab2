"""Mistakes outside the inventory's text: one sentence: what is wrong, where, and what to type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command import deploy
from headfirst.common.errors import InputError
from headfirst.control.deployment.hosts import access
from headfirst.control.inventory.inventory import load

DEMO = "model_source=demo\nengine_device=cpu\nengine_image_source=build\ncpu_cores=0-3\n"
HOSTS = "[head]\nn1 ansible_host=192.0.2.11\n[workers]\nn2 ansible_host=192.0.2.12\n[all:vars]\n"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.ini"
    path.write_text(HOSTS + DEMO)
    return path


def test_a_home_that_does_not_exist(inventory: Path) -> None:
    environment = os.environ | {"HOME": "/proc/no/home", "XDG_CACHE_HOME": str(inventory.parent)}
    argv = [Path(sys.executable).with_name("deploy"), "plan", str(inventory)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_words_between_colons_stay(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text(HOSTS + DEMO + "weights_dir=models:end:\n")
    done = deploy("plan", str(path))
    assert done.returncode == 2
    assert "models:end:" in done.stderr


@pytest.mark.parametrize("verb", ["up", "check", "down"])
def test_a_limit_of_no_host_ends_before_any_work(inventory: Path, verb: str, tmp_path: Path) -> None:
    tags = ["-t", "host"] if verb == "up" else []
    done = deploy(verb, str(inventory), "--limit", "nothing", *tags, XDG_STATE_HOME=str(tmp_path / "state"))
    assert done.returncode == 2
    assert "--limit nothing matches no host" in done.stderr
    assert "n1, n2" in done.stderr
    assert not list(tmp_path.rglob("*.log"))


def test_notes_on_variables_that_nothing_uses(inventory: Path) -> None:
    inventory.write_text(inventory.read_text() + "datacenter=fra1\nnginx_port=80\n")
    done = deploy("plan", str(inventory), "--json")
    assert done.returncode == 0
    notes = [
        f"{inventory}:{line}: Headfirst does not use {name}"
        for line, name in ((10, "datacenter"), (11, "nginx_port"))
    ]
    assert [f"note: {note}" for note in notes] == done.stderr.splitlines()
    assert json.loads(done.stdout)["notes"] == notes


def test_a_program_that_the_login_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text(HOSTS + DEMO + "ansible_password=x\nansible_ssh_password_mechanism=sshpass\n")
    cluster = load([path])
    monkeypatch.setattr(
        access.shutil, "which", lambda name: None if name == "sshpass" else f"/usr/bin/{name}"
    )
    with pytest.raises(InputError, match="sshpass is not installed") as caught:
        access.refuse_missing_tools(cluster)
    assert caught.value.where == "n1"
    login = replace(cluster.head.login, needs_sshpass=False)
    access.refuse_missing_tools(cluster.replaced(lambda host: replace(host, login=login)))


def test_names_are_resolved_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    known = {"gpu1.example.net": ["192.0.2.11"], "gpu2.example.net": ["192.0.2.12", "198.51.100.12"]}

    def resolve(name: str, *_: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in known[name]]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    path = tmp_path / "hosts.ini"
    path.write_text(f"[head]\ngpu1.example.net\n[all:vars]\n{DEMO}")
    cluster = load([path])
    assert (cluster.head.address, cluster.head.login.address) == ("192.0.2.11", "gpu1.example.net")
    path.write_text(f"[head]\ngpu1.example.net\n[workers]\ngpu2.example.net\n[all:vars]\n{DEMO}")
    with pytest.raises(InputError, match=r"resolves to 192\.0\.2\.12, 198\.51\.100\.12") as caught:
        load([path])
    assert caught.value.where == f"{path}:4"
    assert "address=" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("first", "line"),
    [
        ("n0 ansible_host=192.0.2.1 address=127.0.0.1", 2),
        ("n0 ansible_host=127.0.0.1 ansible_port=2222", 2),
        ("n0 ansible_host=192.0.2.1 address=0.0.0.0", 2),
    ],
)
def test_an_address_that_other_hosts_do_not_reach(first: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text(f"[head]\n{first}\n[all:vars]\n{DEMO}")
    assert load([path])
    path.write_text(f"[head]\n{first}\n[workers]\nn1 ansible_host=192.0.2.2\n[all:vars]\n{DEMO}")
    with pytest.raises(InputError, match=r"n0 has the address .*, which no other host reaches") as caught:
        load([path])
    assert caught.value.where == f"{path}:{line}"
    assert "n0 … address=192.0.2.11" in str(caught.value.hint)


def test_names_of_the_configuration_of_ssh(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("Host gpu1\n  HostName 192.0.2.77\n  Port 2022\n")
    path = tmp_path / "hosts.ini"
    path.write_text(f"[head]\ngpu1 ansible_ssh_common_args='-F {tmp_path}/config'\n[all:vars]\n{DEMO}")
    assert load([path]).head.address == "192.0.2.77"
