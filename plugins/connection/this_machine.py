"""The controller as a host."""

from __future__ import annotations

DOCUMENTATION = """
name: this_machine
short_description: The controller as a host
description:
  - As C(ansible.builtin.local), in the environment of a login.
author: The Headfirst authors (@headfirst)
options:
  become_success_timeout:
    {description: Seconds to wait for become to succeed., type: int, default: 10}
  become_strip_preamble:
    {description: Whether the output of become is removed., type: bool, default: true}
extends_documentation_fragment:
  - connection_pipelining
"""

import os
import shlex

from ansible.plugins.connection import local
from ansible_collections.headfirst.serving.plugins.plugin_utils.login_environment import login_environment


class Connection(local.Connection):  # type: ignore[misc]
    """Starts every command with `env`."""

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Run a command of a task."""
        login = login_environment(os.environ)
        # Only what differs: the address of a proxy may have a password, and arguments are public.
        words = [f"--unset={name}" for name in os.environ if name not in login]
        words += [f"{name}={value}" for name, value in login.items() if os.environ.get(name) != value]
        words = ["env", *words, "/bin/sh", "-c", cmd]
        return super().exec_command(shlex.join(words), in_data, sudoable)  # type: ignore[no-any-return]
