"""Commands of a host that need root: through sudo, with the password on stdin where there is one."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from headfirst.control.live.ssh_access.access import HostAccess

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
    if not access.become:
        return Privileged(shlex.join(command), b"")
    sudo = [access.become_command, *_flags(access.become_flags), "-u", access.become_user]
    if access.become_password is None:
        return Privileged(shlex.join([*sudo, "-n", *command]), b"")
    words = [*sudo, "-S", "-p", "", "sh", "-c", _SKIP, "headfirst", *command]
    return Privileged(shlex.join(words), f"{access.become_password}\n{_MARK}\n".encode())


def _flags(text: str) -> list[str]:
    """Ansible's flags for sudo without -n and -S: whether sudo may ask is decided here."""
    kept = []
    for flag in shlex.split(text):
        if flag in ("--non-interactive", "--stdin"):
            continue
        short = flag if flag.startswith("--") else re.sub(r"[nS]", "", flag)
        if short != "-":
            kept.append(short)
    return kept
