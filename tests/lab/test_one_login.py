"""A host behind a jump host, with passwords for SSH and sudo: every verb reaches what Ansible reaches."""

from __future__ import annotations

import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.control import demo
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.hosts.head_folder import describe_on_head
from headfirst.control.deployment.hosts.probe import probe_hosts
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.playbooks import run_stages
from headfirst.control.evidence.collect import collect
from headfirst.control.inventory.inventory import load
from headfirst.control.inventory.login import ASKED
from headfirst.control.live.logs import Logged, stream_logs
from headfirst.control.live.ssh_access.ssh import run, run_privileged, ssh
from headfirst.control.live.ssh_access.tunnel import tunnel
from headfirst.control.live.status import ReplicaTarget, cluster_status
from headfirst.control.live.status_types import ReplicaStatus
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.decide import engines
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.diagnose.subject import subject
from hidden_host import HOST, JUMP, PASSWORD, USER

ENGINE = engines.get("sglang")
READINESS = ENGINE.readiness("chat")

if TYPE_CHECKING:
    from hidden_host import HiddenHost

pytestmark = pytest.mark.lab
pytest_plugins = ["hidden_host"]

# In an INI file a value with both kinds of quotes is best left to a file of variables.
SECRETS = 'ansible_password: !unsafe "{0}"\nansible_become_password: !unsafe "{0}"\n'
WAYS = {
    "ProxyJump": "ansible_ssh_common_args='-F {config} -o ProxyJump=jump'",
    "-J of ssh_args": "ansible_ssh_args='-F {config} -J jump'",
    "ProxyCommand": "ansible_ssh_extra_args='-F {config} -o ProxyCommand=\"ssh -F {config} -W %h:%p jump\"'",
    "a jump host that asks for the password": "ansible_ssh_common_args='-F {config} -J asking'",
}


def inventory(hidden: HiddenHost, folder: Path, way: str, secrets: str = SECRETS.format(PASSWORD)) -> Path:
    (folder / "host_vars").mkdir()
    (folder / "host_vars" / "hidden.yml").write_text(secrets)
    return hidden.inventory(folder / "hosts.ini", WAYS[way].format(config=hidden.config))


def access_of(path: Path) -> HostAccess:
    return host_access(load([path]))["hidden"]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after -k and -K."""
    monkeypatch.setattr(ASKED, "login", PASSWORD)
    monkeypatch.setattr(ASKED, "become", PASSWORD)


@pytest.mark.usefixtures("typed")
def test_typed_passwords(hidden: HiddenHost, tmp_path: Path) -> None:
    path = inventory(hidden, tmp_path, "ProxyJump", "my_nothing: 1\n")
    (host,) = probe_hosts(load([path]), []).hosts
    assert host.cores
    with ssh(access_of(path)) as connection:
        assert run_privileged(access_of(path), connection, "id", "-u").out.strip() == "0"


def test_no_password_is_in_the_log(hidden: HiddenHost, tmp_path: Path) -> None:
    cluster = load([inventory(hidden, tmp_path, "ProxyJump")])
    options = RunOptions(cluster.inventories, verbosity=4)
    result = run_stages("probe.yml", options, cluster, {"hidden": {"probe_peers": []}}, QuietReporter())
    log = result.log_file.read_text()
    assert "ProxyJump=jump" in log  # what ssh is called with is there
    assert PASSWORD not in log
    assert PASSWORD not in repr(result)


@pytest.mark.parametrize("way", WAYS)
def test_ansible_and_paramiko_go_the_same_way(hidden: HiddenHost, tmp_path: Path, way: str) -> None:
    path = inventory(hidden, tmp_path, way)
    cluster = load([path])
    through = hidden.accepted("jump")
    (host,) = probe_hosts(cluster, []).hosts
    assert host.cores
    with ssh(access_of(path)) as connection:
        assert run(connection, "id -un").out.strip() == USER
        assert run_privileged(access_of(path), connection, "id", "-u").out.strip() == "0"
    assert hidden.accepted("jump") >= through + 2


def status_of(access: HostAccess) -> ReplicaStatus:
    return cluster_status(
        [ReplicaTarget("demo", 0, [access], f"http://{HOST}:{ServiceSettings().engine_port}", READINESS)]
    ).replicas[0]


def test_every_live_verb(hidden: HiddenHost, tmp_path: Path) -> None:
    access = access_of(inventory(hidden, tmp_path, "ProxyJump"))
    found = status_of(access)
    assert [(rank.host, rank.state, rank.problem) for rank in found.ranks] == [("hidden", "missing", None)]
    assert found.engine.problem == "nothing answers at its port"
    with pytest.raises(NotReadyError, match="there is no container"):
        list(stream_logs([Logged("rank 0", access)]))
    with tunnel(access, f"http://{HOST}:22") as url:  # as chat and the engine's health go
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname or "", parts.port or 0)) as local:
            assert local.recv(7) == b"SSH-2.0"
    (node,) = collect([access], "", subject(ENGINE, READINESS))
    assert node.now
    assert "SSH" not in str(node.problem)
    assert "password" not in str(node.problem)


def test_the_model_folder_of_the_head(hidden: HiddenHost, tmp_path: Path) -> None:
    folder = tmp_path / "model"  # below folders that only root may enter
    shutil.copytree(demo.checkpoint_dir(), folder)
    access = access_of(inventory(hidden, tmp_path, "ProxyJump"))
    assert describe_on_head(access, str(folder)).id == str(folder)


def test_sudo_that_does_not_ask_gives_the_password_to_nobody(hidden: HiddenHost, tmp_path: Path) -> None:
    """As with NOPASSWD or within sudo's timeout: what sudo does not read must not reach the command."""
    access = access_of(inventory(hidden, tmp_path, "ProxyJump"))
    silent = hidden.folder / "bin" / "silent"
    silent.write_text('#!/bin/sh\nwhile [ "$1" != sh ]; do shift; done\nexec "$@"\n')
    silent.chmod(0o755)
    assert access.become
    with ssh(access) as connection:
        for sudo in ("sudo", "silent"):
            answer = run_privileged(
                replace(access, become=replace(access.become, command=sudo)), connection, "cat"
            )
            assert answer == (0, "", "")


@pytest.mark.parametrize(
    ("secrets", "what"),
    [
        (SECRETS.replace("{0}", "wrong"), "refuses the login"),
        (f'ansible_password: !unsafe "{PASSWORD}"\n', "needs a password for sudo"),
        (
            f'ansible_password: !unsafe "{PASSWORD}"\nansible_become_password: wrong\n',
            "this one is wrong",
        ),
    ],
)
def test_wrong_and_missing_passwords(hidden: HiddenHost, tmp_path: Path, secrets: str, what: str) -> None:
    access = access_of(inventory(hidden, tmp_path, "ProxyJump", secrets))
    found = status_of(access)
    assert what in str(found.ranks[0].problem)
    assert PASSWORD not in repr(found)
    assert PASSWORD not in repr(access)
    assert PASSWORD not in access.ssh_command("true")


def test_a_jump_host_that_does_not_answer(hidden: HiddenHost, tmp_path: Path) -> None:
    path = hidden.inventory(
        tmp_path / "hosts.ini", f"ansible_ssh_common_args='-F {hidden.config} -o ProxyJump={JUMP}:1'"
    )
    with pytest.raises(NotReadyError, match="cannot be reached through") as caught, ssh(access_of(path)):
        pass
    assert "refused" in caught.value.what
    assert "ProxyJump" in str(caught.value.hint)
