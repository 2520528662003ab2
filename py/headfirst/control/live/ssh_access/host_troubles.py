"""What ssh, sudo and Ansible print when a host is not ready, and what a person does about it. Data only.

`what` and `fix` may hold {host}, {address}, {port}, {key}, {key_name} (the host in known_hosts),
{known_hosts}, and commands to type: {ssh} (shows the trouble by hand), {ssh_python}, {ssh_df}.
The first rule whose pattern is found in the output counts.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Rule(NamedTuple):
    """One trouble: how it is recognised, what is wrong, what to do."""

    pattern: re.Pattern[str]
    what: str
    fix: str


def _rule(pattern: str, what: str, fix: str) -> Rule:
    return Rule(re.compile(pattern, re.IGNORECASE), what, fix)


# The order matters: ssh prints the reason before "Permission denied" or "verification failed".
UNREACHABLE = (
    _rule(
        r"could not resolve hostname|name or service not known|temporary failure in name resolution",
        "the name {address} does not resolve to an address",
        "Correct ansible_host in the inventory, or add the name on this machine (/etc/hosts, DNS).",
    ),
    _rule(
        r"connection refused",
        "nothing listens for SSH at {address} port {port}: connection refused",
        "Start sshd there or correct ansible_host and ansible_port in the inventory. Try: {ssh}",
    ),
    _rule(
        r"timed out|no route to host|network is unreachable|host is down",
        "{address} does not answer on SSH (port {port})",
        "Check that the server is on, the address is right, and no firewall blocks the port. Try: {ssh}",
    ),
    _rule(
        r"remote host identification has changed",
        "the host key of {address} is not the one in {known_hosts}",
        "If the server was reinstalled, remove its old key with "
        '`ssh-keygen -f {known_hosts} -R "{key_name}"` and log in once with: {ssh}. '
        "If not, another host may answer at this address.",
    ),
    _rule(
        r"host key verification failed|host key is known for",
        "the host key of {address} is not known on this machine",
        "Log in once, compare the fingerprint, and answer yes: {ssh}",
    ),
    _rule(
        r"unprotected private key file|bad permissions",
        "ssh does not use the key {key}: other users can read it",
        "chmod 600 {key}",
    ),
    _rule(
        r"no such identity|identity file .* not accessible",
        "the key {key} does not exist",
        "Correct ansible_ssh_private_key_file in the inventory.",
    ),
    _rule(
        r"permission denied|too many authentication failures",
        "{address} refuses the login: wrong user or wrong SSH key or password",
        "Name the right ansible_user and ansible_ssh_private_key_file in the inventory "
        "(a key with a passphrase: ssh-add it first), or give the password: -k, or ansible_password. "
        "Try: {ssh}",
    ),
)

NOT_READY = (
    _rule(
        r"incorrect (?:sudo|become|password)|incorrect password attempt|sorry, try again",
        "sudo on {host} refuses the password: the login needs a password for sudo, and this one is wrong",
        "Correct ansible_become_password in the inventory, or give it with -K.",
    ),
    _rule(
        r"missing sudo password|a password is required",
        "the login on {host} needs a password for sudo",
        "Give it with -K, or as ansible_become_password in a file of Ansible Vault. "
        "Or allow sudo without one on the host: "
        '`echo "$USER ALL=(ALL) NOPASSWD: ALL" | sudo tee /etc/sudoers.d/$USER`.',
    ),
    _rule(
        r"is not in the sudoers file|is not allowed to (?:run sudo|execute)",
        "the login on {host} may not use sudo",
        "Name a user who may (or root) as ansible_user in the inventory, or add this one to the group sudo.",
    ),
    _rule(
        r"sudo: (?:command )?not found|sudo: inaccessible",
        "{host} has no sudo, and the login is not root",
        "Log in as root (ansible_user=root in the inventory), or install sudo there.",
    ),
    _rule(
        r"module interpreter .* was not found|/python3[^ ]*: (?:not found|no such file)",
        "{host} has no Python 3",
        "Install it there: {ssh_python}",
    ),
    _rule(
        r"no space left on device|errno 28\b|not enough free space|disk quota exceeded",
        "a disk of {host} is full",
        "See which one: {ssh_df}. Free some space and run the same command again; it continues there.",
    ),
)
