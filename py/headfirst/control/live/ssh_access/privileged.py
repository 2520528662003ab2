"""A command line for a host as the user that Ansible's tasks become."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from headfirst.decide.cluster.login import HostAccess

# Not a word that a password or the input of a command is.
_MARK = "headfirst: input starts"
# Drops a password that sudo did not ask for, and hands the rest of stdin to the command.
_SKIP = f'while IFS= read -r line; do [ "$line" = "{_MARK}" ] && break; done; exec "$@"'


class Privileged(NamedTuple):
    """A command line for the host's shell, and what must be written to its stdin before its own input."""

    line: str
    first: bytes


def privileged(access: HostAccess, *command: str) -> Privileged:
    """The command as the user that Ansible's tasks become."""
    become = access.become
    if become is None:
        return Privileged(shlex.join(command), b"")
    sudo = [become.command, *_flags(become.flags), "-u", become.user]
    if become.password is None:
        return Privileged(shlex.join([*sudo, "-n", *command]), b"")
    words = [*sudo, "-S", "-p", "", "sh", "-c", _SKIP, "headfirst", *command]
    return Privileged(shlex.join(words), f"{become.password}\n{_MARK}\n".encode())


def _flags(text: str) -> list[str]:
    """Ansible's flags for sudo without -n and -S: whether sudo may ask is decided here."""
    flags = []
    for flag in shlex.split(text):
        if flag in ("--non-interactive", "--stdin"):
            continue
        short = flag if flag.startswith("--") else re.sub(r"[nS]", "", flag)
        if short != "-":
            flags.append(short)
    return flags
