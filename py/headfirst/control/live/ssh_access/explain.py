"""What ssh or sudo printed about a host → the error that a person reads."""

from __future__ import annotations

import re
from typing import NamedTuple

from headfirst.common.errors import InputError, NotReadyError, UnreachableError
from headfirst.control.live.ssh_access import openssh
from headfirst.decide.cluster.login import HostAccess


def unreachable(access: HostAccess, said: str) -> NotReadyError:
    """The error for a host that no command could be run on; `said` is what ssh (or paramiko) reported."""
    if access.local:
        what = f"a command on this machine did not end well: {said}"
        return not_ready(access, said) or NotReadyError(what, where=access.host)
    what, by_hand = f"the host does not answer on SSH: {said}", f"Try: {access.ssh_command('true')}"
    return (
        _from_rules(access, said, UNREACHABLE, UnreachableError)
        or not_ready(access, said)
        or UnreachableError(what, where=access.host, hint=by_hand)
    )


def bad_options(access: HostAccess, said: str) -> InputError:
    """The error for options or a configuration that ssh refuses."""
    return InputError(
        f"ssh refuses its options: {said}",
        where=access.host,
        hint="Correct ansible_ssh_common_args, ansible_ssh_extra_args or ansible_ssh_args in the inventory, "
        "or ~/.ssh/config.",
    )


def no_way(access: HostAccess, through: str, said: str) -> NotReadyError:
    """The error for a jump host or a proxy command that does not lead to the host."""
    last = (said.splitlines() or ["it printed nothing"])[-1]
    return UnreachableError(
        f"{access.address} cannot be reached through {through}: {last}",
        where=access.host,
        hint=f"Try: {access.ssh_command('true')}",
    )


def not_ready(access: HostAccess, said: str) -> NotReadyError | None:
    """The error for a host that answers but lacks sudo, Python or disk space; None: it is something else."""
    return _from_rules(access, said, NOT_READY, NotReadyError)


def _from_rules(
    access: HostAccess, said: str, rules: tuple[SshFailureRule, ...], kind: type[NotReadyError]
) -> NotReadyError | None:
    rule = next((rule for rule in rules if re.search(rule.pattern, said, re.IGNORECASE)), None)
    if rule is None:
        return None
    words = _words(access, said)
    return kind(rule.what.format(**words), where=access.host, hint=rule.fix.format(**words))


def _words(access: HostAccess, said: str) -> dict[str, str]:
    """What a rule's sentences may name. ssh's own message names the port and the key that it used."""
    port = str(access.port or _matched(r"port (\d+)", said) or 22)
    key = access.private_key or _matched(r"(?:no such identity: |Load key \"|for ')([^:\"']+)", said)
    return {
        "host": access.host,
        "address": access.address,
        "port": port,
        "key": str(key or "that ssh tries"),
        "key_name": access.address if port == "22" else f"[{access.address}]:{port}",
        "known_hosts": _known_hosts(access),
        "ssh": access.ssh_command("true"),
        "ssh_python": access.ssh_command("sudo", "apt-get", "install", "-y", "python3"),
        "ssh_df": access.ssh_command("df", "-h"),
    }


def _known_hosts(access: HostAccess) -> str:
    """The file to which ssh writes the keys of hosts."""
    try:
        listed = openssh.settings(access.ssh_words()).get("userknownhostsfile", [])
    except openssh.BadOptionError:
        listed = []
    return listed[0].split()[0] if listed else "~/.ssh/known_hosts"


def _matched(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return match.group(1) if match else None


class SshFailureRule(NamedTuple):
    """One trouble: how it is recognised, what is wrong, what to do."""

    pattern: str
    what: str
    fix: str


# The order matters: ssh prints the reason before "Permission denied" or "verification failed".
UNREACHABLE = (
    SshFailureRule(
        r"could not resolve hostname|name or service not known|temporary failure in name resolution",
        "the name {address} does not resolve to an address",
        "Correct ansible_host in the inventory, or add the name on this machine (/etc/hosts, DNS).",
    ),
    SshFailureRule(
        r"connection refused",
        "nothing listens for SSH at {address} port {port}: connection refused",
        "Start sshd there or correct ansible_host and ansible_port in the inventory. Try: {ssh}",
    ),
    SshFailureRule(
        r"timed out|no route to host|network is unreachable|host is down",
        "{address} does not answer on SSH (port {port})",
        "Check that the server is on, the address is right, and no firewall blocks the port. Try: {ssh}",
    ),
    SshFailureRule(
        r"remote host identification has changed",
        "the host key of {address} is not the one in {known_hosts}",
        "If the server was reinstalled, remove its old key with "
        '`ssh-keygen -f {known_hosts} -R "{key_name}"` and log in once with: {ssh}. '
        "If not, another host may answer at this address.",
    ),
    SshFailureRule(
        r"host key verification failed|host key is known for",
        "the host key of {address} is not known on this machine",
        "Log in once, compare the fingerprint, and answer yes: {ssh}",
    ),
    SshFailureRule(
        r"unprotected private key file|bad permissions",
        "ssh does not use the key {key}: other users can read it",
        "chmod 600 {key}",
    ),
    SshFailureRule(
        r"no such identity|identity file .* not accessible",
        "the key {key} does not exist",
        "Correct ansible_ssh_private_key_file in the inventory.",
    ),
    SshFailureRule(
        r"permission denied|too many authentication failures",
        "{address} refuses the login: wrong user or wrong SSH key or password",
        "Name the right ansible_user and ansible_ssh_private_key_file in the inventory "
        "(a key with a passphrase: ssh-add it first), or give the password: -k, or ansible_password. "
        "Try: {ssh}",
    ),
)

NOT_READY = (
    SshFailureRule(
        r"incorrect (?:sudo|become|password)|incorrect password attempt|sorry, try again",
        "sudo on {host} refuses the password: the login needs a password for sudo, and this one is wrong",
        "Correct ansible_become_password in the inventory, or give it with -K.",
    ),
    SshFailureRule(
        r"missing sudo password|a password is required",
        "the login on {host} needs a password for sudo",
        "Give it with -K, or as ansible_become_password in a file of Ansible Vault. "
        "Or allow sudo without one on the host: "
        '`echo "$USER ALL=(ALL) NOPASSWD: ALL" | sudo tee /etc/sudoers.d/$USER`.',
    ),
    SshFailureRule(
        r"is not in the sudoers file|is not allowed to (?:run sudo|execute)",
        "the login on {host} may not use sudo",
        "Name a user who may (or root) as ansible_user in the inventory, or add this one to the group sudo.",
    ),
    SshFailureRule(
        r"sudo: (?:command )?not found|sudo: inaccessible",
        "{host} has no sudo, and the login is not root",
        "Log in as root (ansible_user=root in the inventory; on this machine: run `deploy` as root), or "
        "install sudo there.",
    ),
    SshFailureRule(
        r"module interpreter .* was not found|/python3[^ ]*: (?:not found|no such file)",
        "{host} has no Python 3",
        "Install it there: {ssh_python}",
    ),
    SshFailureRule(
        r"no space left on device|errno 28\b|not enough free space|disk quota exceeded",
        "a disk of {host} is full",
        "See which one: {ssh_df}. Free some space and run the same command again; it continues there.",
    ),
)
