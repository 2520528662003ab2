"""A host that is the machine `deploy` runs on: real processes of it, and no SSH."""

from __future__ import annotations

import json
import os
import socket
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils.login_environment import login_environment
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.cli.app import app
from headfirst.control.deployment.hosts import access as hosts_access
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.running import inventory as generated
from headfirst.control.inventory import address
from headfirst.control.inventory.inventory import load
from headfirst.control.live.clock import run_script
from headfirst.control.live.ssh_access.ssh import run, run_privileged, ssh
from headfirst.control.live.ssh_access.transport import docker_over_ssh
from headfirst.control.live.ssh_access.tunnel import tunnel
from headfirst.control.ownership import requests
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.control.run.runner import run_playbook
from headfirst.decide.cluster.login import Become, HostAccess
from headfirst.decide.cluster.types import Cluster
from typer.testing import CliRunner

HERE = HostAccess("box", "192.0.2.7", local=True)
LINE = "[head]\n{}\n[all:vars]\ngpus=8\ngpu=H100-80G\nmodel=/any\nmodel_source=path\n"
# Stands for sudo: a user other than root has it, and this test may not.
SUDO = """#!/bin/sh
while [ "$1" != -n ] && [ "$1" != -p ]; do shift; done
[ "$1" = -n ] || {{ shift; read -r password; [ "$password" = secret ] || exit 1; }}
shift
BECAME=root PATH={folder}:$PATH exec "$@"
"""
ENGINE = """#!/usr/bin/env python3
import json, sys
if sys.argv[1] == "version":
    print("1.41")
    sys.exit()
request = b""
while not request.endswith(b"\\r\\n\\r\\n"):
    request += sys.stdin.buffer.read1()
body = json.dumps([]).encode()
head = f"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
sys.stdout.buffer.write(head.encode() + body)
"""


def inventory(folder: Path, line: str, *more: str) -> Path:
    path = folder / "box.ini"
    path.write_text(LINE.format("\n".join([line, *more])))
    return path


def cluster(folder: Path, line: str, *more: str) -> Cluster:
    return load([inventory(folder, line, *more)])


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> str:
    """This machine's address, of a machine with a network."""
    monkeypatch.setattr(address, "this_machine", lambda: "198.51.100.7")
    return "198.51.100.7"


@pytest.mark.parametrize(
    ("line", "local"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("box ansible_connection=local", True),
        ("box ansible_connection=ansible.builtin.local", True),
        ("localhost ansible_connection=local ansible_user=ops", True),
        ("localhost ansible_port=2222", False),
        ("localhost ansible_host=192.0.2.8", False),
        ("localhost ansible_connection=ssh address=192.0.2.8", False),
        ("box ansible_host=192.0.2.8", False),
    ],
)
def test_which_host_is_this_machine(tmp_path: Path, here: str, line: str, local: bool) -> None:
    if line == "localhost ansible_port=2222":
        line += " address=192.0.2.8"
    host = cluster(tmp_path, line).head
    assert host.login.local is local
    assert host.login.obstacle is None
    assert host.address == (here if local else "192.0.2.8")


def test_others_reach_the_head_that_is_this_machine(tmp_path: Path, here: str) -> None:
    made = cluster(tmp_path, "localhost", "[workers]", "node2 ansible_host=192.0.2.8")
    assert made.services[0].replicas[0].url.startswith(f"http://{here}:")
    assert [host.login.local for host in made.hosts] == [True, False]
    for line in ("box ansible_connection=local ansible_host=192.0.2.8", "localhost address=192.0.2.8"):
        assert cluster(tmp_path, line).head.address == "192.0.2.8", "an address that is written stays"


def test_without_a_network_no_other_host_reaches_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address, "this_machine", lambda: "127.0.0.1")
    assert cluster(tmp_path, "localhost").head.address == "127.0.0.1"
    with pytest.raises(InputError, match="no other host reaches"):
        cluster(tmp_path, "localhost", "[workers]", "node2 ansible_host=192.0.2.8")


def test_the_login_is_this_user_whoever_the_inventory_names(tmp_path: Path) -> None:
    made = cluster(tmp_path, "localhost ansible_user=ops")
    assert (made.head.login.become is None) == (os.geteuid() == 0)
    access = host_access(made)["localhost"]
    assert access.local
    assert access.ssh_command("docker", "ps") == "docker ps"


def test_a_run_reaches_it_by_our_connection(tmp_path: Path) -> None:
    path = tmp_path / "generated.yml"
    generated.write(path, cluster(tmp_path, "localhost", "[workers]", "n ansible_host=192.0.2.8"), {}, {})
    assert path.read_text().count("ansible_connection: headfirst.serving.this_machine") == 1


def test_no_ssh_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts_access.shutil, "which", lambda name: None)
    hosts_access.refuse_missing_tools(cluster(tmp_path, "localhost"))
    with pytest.raises(InputError, match="ssh is not installed"):
        hosts_access.refuse_missing_tools(cluster(tmp_path, "box ansible_host=192.0.2.8"))


def test_a_command_of_this_machine() -> None:
    with ssh(HERE) as connection:
        assert run(connection, "cat; echo no >&2; exit 3", first=b"yes") == (3, "yes", "no\n")
        before = len([*Path("/proc/self/fd").iterdir()])
        for _ in range(20):  # it reads nothing of what it is given
            unread = run(connection, "echo no sudo >&2; exit 127", first=b"x" * 300_000)
            assert unread == (127, "", "no sudo\n")
        assert len([*Path("/proc/self/fd").iterdir()]) <= before


def test_a_command_that_prints_too_much() -> None:
    with ssh(HERE) as connection:
        assert len(run(connection, "head -c 100000 /dev/zero >&2", timeout=10).err) == 1 << 16
    with pytest.raises(UntrustedError, match="larger than 10 bytes"), ssh(HERE) as connection:
        run(connection, "yes", limit=10)


def test_a_command_that_hangs() -> None:
    with pytest.raises(NotReadyError, match="on this machine") as caught, ssh(HERE) as connection:
        run(connection, "sleep 60", timeout=0.2)
    assert "ssh" not in str(caught.value.hint)


def test_a_command_has_the_environment_of_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "DOCKER_HOST"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("PATH", f"/nowhere:{os.environ['PATH']}")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@192.0.2.1:3128")
    with ssh(HERE) as connection:
        out = run(connection, "env").out
    assert "/nowhere" not in out
    assert "HTTPS_PROXY=http://user:secret@192.0.2.1:3128" in out
    assert login_environment({})["HOME"] == str(Path("~").expanduser())


def test_tasks_of_ansible_have_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no proxy's password is in an argument, which every user of the machine reads."""
    monkeypatch.setenv("PYTHONPATH", f"{os.environ.get('PYTHONPATH', '')}:/nowhere")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@192.0.2.1:3128")
    hosts, playbook, log = tmp_path / "hosts.ini", tmp_path / "play.yml", tmp_path / "log"
    hosts.write_text("box ansible_connection=headfirst.serving.this_machine\n")
    shell = "env; command -v python3"
    playbook.write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        f'    - ansible.builtin.shell: "{shell}"\n      register: out\n'
        "    - ansible.builtin.set_stats:\n        data: {text: '{{ out.stdout }}'}\n"
    )
    with QuietReporter() as reporter:
        result = run_playbook(playbook, [hosts], reporter=reporter, log_file=log, verbosity=3)
    assert result.ok, log.read_text()[-2000:]
    text = result.stats["text"]
    assert "/nowhere" not in text and "ANSIBLE_" not in text
    assert "HTTPS_PROXY=http://" in text  # Ansible masks the rest
    assert text.splitlines()[-1] in ("/usr/bin/python3", "/usr/local/bin/python3")
    started = [line for line in log.read_text().splitlines() if "EXEC env " in line]
    assert started and all("--unset=PYTHONPATH" in line and "HTTPS_PROXY" not in line for line in started)


@pytest.fixture
def become(tmp_path: Path) -> Become:
    """Runs commands with a Docker of this test before the machine's."""
    for name, text in {"sudo": SUDO.format(folder=tmp_path), "docker": ENGINE}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(stat.S_IRWXU)
    return Become(command=str(tmp_path / "sudo"))


@pytest.mark.parametrize("password", [None, "secret"])
def test_sudo_and_the_engine_behind_it(become: Become, password: str | None) -> None:
    access = replace(HERE, become=replace(become, password=password))
    with ssh(access) as connection:
        assert run_privileged(access, connection, "sh", "-c", "echo $BECAME").out == "root\n"
    with docker_over_ssh(access) as client:
        assert client.containers.list() == []


def test_a_password_that_sudo_asks_for(tmp_path: Path) -> None:
    sudo = tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    sudo.chmod(stat.S_IRWXU)
    access = replace(HERE, become=Become(command=str(sudo)))
    with pytest.raises(NotReadyError, match="needs a password for sudo") as caught:
        requests.ask(access, "read")
    assert "-K" in str(caught.value.hint)


def test_a_port_is_reached_at_its_own_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with tunnel(HERE, url, timed=True) as local:
            assert local == url


def test_a_script_and_its_clock() -> None:
    script = (
        "import sys, time\n"
        "for line in sys.stdin:\n"
        "    print(time.time() if line == 'time\\n' else line + sys.argv[1], flush=True)\n"
    )
    clock, answer = run_script(HERE, script, "!", what="it", timeout_s=10, limit=100, last="go")
    assert answer == b"go\n!\n"
    assert abs(clock.offset) < 1


@pytest.mark.parametrize("verb", ["status", "logs", "events", "diagnose"])
def test_verbs_of_a_machine_on_which_nothing_runs(tmp_path: Path, verb: str) -> None:
    path = inventory(tmp_path, "localhost", "[all:vars]", f"cluster_name=none-{os.getpid()}")
    result = CliRunner().invoke(app, [verb, str(path)])
    said = result.output + (str(result.exception) if isinstance(result.exception, HeadfirstError) else "")
    assert result.exception is None or isinstance(result.exception, (HeadfirstError, SystemExit)), said
    assert "SSH" not in said
    assert said


def test_status_as_json(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["status", str(inventory(tmp_path, "localhost")), "--json"])
    state = json.loads(result.stdout)
    assert not state["ready"]
    (rank,) = state["replicas"][0]["ranks"]
    assert rank["host"] == "localhost"
    assert rank["state"] == "missing" or "Docker" in rank["problem"], rank
