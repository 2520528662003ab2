"""What a person is told when a host cannot be used: the same words from Ansible's ssh and from paramiko."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.live.ssh_access.ssh import run, ssh
from headfirst.control.run.failures import to_error
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.control.run.runner import run_playbook
from headfirst.decide.cluster.login import HostAccess

if TYPE_CHECKING:
    from live_sshd import Sshd

pytestmark = pytest.mark.lab
pytest_plugins = ["live_sshd"]


@dataclass(frozen=True)
class Case:
    """How a login is broken, and what the error and its hint say then. Paths are in the server's folder."""

    what: str
    hint: str
    paths: dict[str, str] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)


CASES = {
    "refused": Case("port 1: connection refused", "ssh -i .*true", changes={"port": 1}),
    "no-name": Case("does not resolve", "ansible_host", changes={"address": "no-such-host.invalid"}),
    "wrong-key": Case("wrong SSH key", "wrong_key", {"private_key": "wrong_key"}),
    "no-key": Case("not-there does not exist", "private_key_file", {"private_key": "not-there"}),
    "changed-key": Case("is not the one in", "ssh-keygen -f", {"known_hosts": "changed_hosts"}),
    "unknown-key": Case("is not known", "fingerprint", {"known_hosts": "no_hosts"}),
}


def broken(sshd: Sshd, case: Case, address: str = "127.0.0.1") -> Any:
    paths = {name: sshd.folder / path for name, path in case.paths.items()}
    return sshd.access(**{"address": address, **paths, **case.changes})


@pytest.mark.parametrize("name", CASES)
def test_paramiko_says_what_is_wrong(sshd: Sshd, name: str) -> None:
    case = CASES[name]
    with pytest.raises(NotReadyError, match=case.what) as caught, ssh(broken(sshd, case)):
        pass
    assert caught.value.where == "node1"
    with pytest.raises(AssertionError, match=case.hint):
        raise AssertionError(caught.value.hint)


def test_ansible_says_the_same(sshd: Sshd, tmp_path: Path) -> None:
    lines, access = [], {}
    for number, (name, case) in enumerate(CASES.items(), start=1):
        # An address each: Ansible shares the connection of hosts that look the same.
        login = replace(broken(sshd, case, address=f"127.0.0.{number}"), host=name)
        access[name] = login
        lines.append(
            f"{name} ansible_host={login.address} ansible_port={login.port} ansible_user={login.user} "
            f"ansible_ssh_private_key_file={login.private_key} "
            f"ansible_ssh_common_args='-o UserKnownHostsFile={login.known_hosts} -o IdentitiesOnly=yes'"
        )
    (tmp_path / "hosts.ini").write_text("\n".join(lines))
    (tmp_path / "play.yml").write_text(
        "- name: check | Reach\n  hosts: all\n  gather_facts: false\n"
        "  tasks: [{name: Ping, ansible.builtin.ping: }]\n"
    )
    result = run_playbook(
        tmp_path / "play.yml", [tmp_path / "hosts.ini"], reporter=QuietReporter(), log_file=tmp_path / "log"
    )
    assert {failure.host for failure in result.unreachable} == set(CASES)
    for failure in result.unreachable:
        error = to_error(replace(result, unreachable=[failure]), access)
        with pytest.raises(NotReadyError, match=CASES[failure.host].what):
            raise error
        assert str(tmp_path / "log") in str(error)


@pytest.mark.parametrize(
    ("sudo", "what"),
    [
        ("echo 'sudo: a password is required' >&2; exit 1", "needs a password for sudo"),
        ("echo 'daemon is not in the sudoers file.' >&2; exit 1", "may not use sudo"),
        ("exit 127", None),
    ],
)
def test_ansible_without_sudo(sshd: Sshd, tmp_path: Path, sudo: str, what: str | None) -> None:
    sshd.program("sudo", sudo)
    login = sshd.access()
    (tmp_path / "hosts.ini").write_text(
        f"node1 ansible_host=127.0.0.1 ansible_port={login.port} ansible_user=root "
        f"ansible_ssh_private_key_file={login.private_key} "
        f"ansible_ssh_common_args='-o UserKnownHostsFile={login.known_hosts}'\n"
    )
    # As root to root Ansible would not call sudo at all.
    (tmp_path / "play.yml").write_text(
        "- name: check | Reach\n  hosts: all\n  gather_facts: false\n  become: true\n  become_user: nobody\n"
        "  tasks: [{name: Ping, ansible.builtin.ping: }]\n"
    )
    result = run_playbook(
        tmp_path / "play.yml", [tmp_path / "hosts.ini"], reporter=QuietReporter(), log_file=tmp_path / "log"
    )
    error = to_error(result, {"node1": login})
    assert (error.exit_code, error.where) == (3 if what else 1, "node1")
    assert what is None or what in error.what


def test_jump_host_of_the_ssh_configuration(sshd: Sshd, tmp_path: Path) -> None:
    # ssh takes the home folder from the user database, so the configuration is named.
    config = tmp_path / "config"
    config.write_text(
        f"Host inner\n  HostName 127.0.0.3\n  Port {sshd.port}\n  ProxyJump root@127.0.0.2:{sshd.port}\n"
        f"Host *\n  User root\n  IdentityFile {sshd.folder}/key\n"
        f"  UserKnownHostsFile {sshd.folder}/known_hosts\n  StrictHostKeyChecking yes\n"
    )
    inner = HostAccess("node1", "inner", options=("-F", str(config)))
    with ssh(inner) as connection:
        answer = run(connection, "echo $SSH_CONNECTION; echo oops >&2; exit 3")
    assert answer.code == 3
    assert answer.err == "oops\n"
    source, _, target, _ = answer.out.split()
    assert target == "127.0.0.3"
    # The jump host asked for the connection itself, from its own loopback address.
    assert source == "127.0.0.1"


def test_unknown_host_keys_where_ssh_accepts_them(sshd: Sshd) -> None:
    lax = sshd.access(
        known_hosts=sshd.folder / "no_hosts", options=("-o", "StrictHostKeyChecking=accept-new")
    )
    with ssh(lax) as connection:
        assert run(connection, "true").code == 0
    with (
        pytest.raises(NotReadyError, match="is not the one in"),
        ssh(replace(lax, known_hosts=sshd.folder / "changed_hosts")),
    ):
        pass


def test_a_host_key_under_an_alias(sshd: Sshd, tmp_path: Path) -> None:
    kind, key = (sshd.folder / "host_key.pub").read_text().split()[:2]
    (tmp_path / "known").write_text(f"the-node {kind} {key}\n")
    options = ("-o", "HostKeyAlias=the-node")
    with ssh(sshd.access(known_hosts=tmp_path / "known", options=options)) as connection:
        assert run(connection, "true").code == 0


def test_options_that_ssh_refuses(sshd: Sshd) -> None:
    with (
        pytest.raises(InputError, match="Bad configuration option: nosuch"),
        ssh(sshd.access(options=("-o", "NoSuch=1"))),
    ):
        pass


def test_a_host_that_only_ansible_reaches(sshd: Sshd) -> None:
    with pytest.raises(InputError, match="needs SSH"), ssh(sshd.access(obstacle="this verb needs SSH")):
        pass
