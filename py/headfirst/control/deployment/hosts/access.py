"""How each host of a cluster is reached, for what talks to hosts without Ansible."""

from __future__ import annotations

import shutil

from headfirst.common.errors import InputError
from headfirst.control.deployment.lab_nodes import lab_logins
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.cluster.types import Cluster


def host_access(cluster: Cluster) -> dict[str, HostAccess]:
    """Access by host name. Raises NotReadyError where lab nodes are not up."""
    return {host.name: host.login for host in cluster.hosts} | lab_logins(cluster)


def login_secrets(cluster: Cluster) -> list[str]:
    """Passwords of the logins: they must not appear in a log, an event or an error."""
    passwords: list[str] = []
    for host in cluster.hosts:
        become = host.login.become.password if host.login.become else None
        passwords += [secret for secret in (host.login.password, become) if secret]
    return list(dict.fromkeys(passwords))


def refuse_missing_tools(cluster: Cluster) -> None:
    """Raise InputError where a run of Ansible would end because this machine lacks a program."""
    remote = any(not host.login.local for host in cluster.hosts)
    if remote and shutil.which("ssh") is None:
        raise InputError("ssh is not installed on this machine", hint="apt-get install openssh-client")
    host = next((host for host in cluster.hosts if host.login.needs_sshpass), None)
    if host and shutil.which("sshpass") is None:
        raise InputError(
            "ansible_ssh_password_mechanism=sshpass, and sshpass is not installed on this machine",
            where=host.name,
            hint="Remove that setting: ssh then gets the password itself. Or: apt-get install sshpass",
        )
