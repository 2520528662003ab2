"""Options of Ansible's ssh and sudo plugins for a host → the HostAccess that all verbs use.

ASKED has the passwords that a person typed for this process (`-k`, `-K`); the inventory's own win, as in
Ansible.
"""

from __future__ import annotations

import getpass
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headfirst.common.errors import InputError
from headfirst.decide.cluster.login import Become, HostAccess


@dataclass
class Asked:
    """The login's password and sudo's, for every host that the inventory gives none."""

    login: str | None = field(default=None, repr=False)
    become: str | None = field(default=None, repr=False)


ASKED = Asked()


_SSH = ("ssh", "smart", "paramiko", "paramiko_ssh")
LOCALHOST = ("localhost", "127.0.0.1", "::1")
# A host of such a name with one of these is another one: behind a forwarded port, for example.
_REMOTE = {"ansible_connection", "ansible_host", "ansible_ssh_host", "ansible_port", "ansible_ssh_port"}


def login_of(name: str, options: Mapping[str, Any], where: Mapping[str, str | None]) -> HostAccess:
    """The login of a host, from HostReading.login; `where` has the places of its variables."""
    local = options["connection"] == "local" or (name in LOCALHOST and where.keys().isdisjoint(_REMOTE))
    if local:
        options = {**options, "connection": "local", "user": getpass.getuser()}
    before, after = options["ssh_args"] or "", options["ssh_more_args"]
    checking = [] if options["host_key_checking"] else ["-o", "StrictHostKeyChecking=no"]
    password = options["password"] or ASKED.login
    return HostAccess(
        host=name,
        address=str(options["host"]),
        port=int(options["port"]) if options["port"] else None,
        user=options["user"] or None,
        private_key=Path(options["private_key"]).expanduser() if options["private_key"] else None,
        password=password,
        options=(*_words(before, where), *checking),
        more_options=_words(after, where),
        become=_become(options),
        needs_sshpass=password is not None and options["password_mechanism"] == "sshpass",  # noqa: S105 - a program
        ssh_args=before or None,
        obstacle=_obstacle(options),
        local=local,
    )


def _become(options: Mapping[str, Any]) -> Become | None:
    """None where the login is that user already, or the inventory states ansible_become=false."""
    user = str(options["become_user"] or "root")
    if not options["become"] or options["user"] == user:
        return None
    return Become(
        user,
        str(options["become_exe"] or "sudo"),
        str(options["become_flags"] or ""),
        options["become_password"] or ASKED.become,
    )


def _obstacle(options: Mapping[str, Any]) -> str | None:
    if options["connection"] not in (*_SSH, "local"):
        return f"ansible_connection={options['connection']}: this verb needs SSH or local"
    if options["become"] and options["become_method"] != "sudo":
        return f"ansible_become_method={options['become_method']}: this verb needs sudo"
    return None


def _words(text: str, where: Mapping[str, str | None]) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        names = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
        place = next((where[name] for name in names if where.get(name)), None)
        raise InputError(
            f"the options of ssh cannot be read: {error}", where=place, hint="Close the quotes."
        ) from None
