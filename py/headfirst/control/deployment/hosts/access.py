"""How each host of a cluster is reached, for what talks to hosts without Ansible."""

from __future__ import annotations

import shutil
from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.control.deployment.lab_nodes import lab_access, lab_of
from headfirst.control.lab.types import LabAccess
from headfirst.control.live.ssh_access.access import HostAccess
from headfirst.decide.cluster.types import Become, Cluster, Host


def host_access(cluster: Cluster) -> dict[str, HostAccess]:
    """Access by host name. Raises NotReadyError where lab nodes are not up."""
    lab = lab_of(cluster)
    login = lab_access(lab) if lab else None
    return {host.name: _access(host, login) for host in cluster.hosts}


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


def _access(host: Host, login: LabAccess | None) -> HostAccess:
    ssh_login = host.login
    if host.lab and login:
        return HostAccess(
            host.name,
            ssh_login.host,
            login.user,
            ssh_login.port,
            login.private_key,
            login.known_hosts,
            become=Become(),
        )
    return HostAccess(
        host.name,
        ssh_login.host,
        ssh_login.user,
        ssh_login.port,
        Path(ssh_login.private_key) if ssh_login.private_key else None,
        become=ssh_login.become,
        options=ssh_login.options,
        more_options=ssh_login.more_options,
        password=ssh_login.password,
        obstacle=ssh_login.obstacle,
        local=ssh_login.local,
    )
