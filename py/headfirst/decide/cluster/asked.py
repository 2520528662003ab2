"""Passwords that a person typed for this process (`-k`, `-K`); the inventory's own win, as in Ansible."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Asked:
    """The login's password and sudo's, for every host that the inventory gives none."""

    login: str | None = field(default=None, repr=False)
    become: str | None = field(default=None, repr=False)


ASKED = Asked()
