"""This machine as a host: commands are processes of this user, and a port is reached at its own address.

The methods are those of paramiko that the verbs use: the same code is for both.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils.login_environment import login_environment


class LocalChannel(socket.socket):
    """A command's stdin and stdout, as paramiko.Channel."""

    def __init__(self) -> None:
        ours, self._theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        self._errors, self._complaining = socket.socketpair()
        self.status_event = threading.Event()
        self._process: subprocess.Popen[bytes]

    def exec_command(self, command: str) -> None:
        """Start the command, with a shell."""
        with self._theirs, self._complaining:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                stdin=self._theirs.fileno(),
                stdout=self._theirs.fileno(),
                stderr=self._complaining.fileno(),
                cwd="/",
                env=login_environment(os.environ),
                start_new_session=True,  # Ctrl-C is for `deploy` alone
            )
        threading.Thread(target=_await_end, args=(self._process, self.status_event), daemon=True).start()

    def send(self, *arguments: Any) -> int:
        """As of a socket; what a command that has ended does not read is dropped: its output states why."""
        with contextlib.suppress(BrokenPipeError):
            return super().send(*arguments)
        return len(arguments[0])

    def recv_into(self, *arguments: Any) -> int:
        """As of a socket; a command that ended before it read all its input ends its output, too."""
        with contextlib.suppress(ConnectionResetError):
            return super().recv_into(*arguments)
        return 0

    def makefile(self, *arguments: Any, **options: Any) -> Any:
        """As of a socket; the file has its channel."""
        file: Any = super().makefile(*arguments, **options)
        file.channel = self
        return file

    def makefile_stderr(self) -> Any:
        """What the command prints on stderr."""
        self._errors.settimeout(self.gettimeout())
        file: Any = self._errors.makefile("rb")
        file.channel = self
        return file

    def shutdown_write(self) -> None:
        """End the command's input."""
        self.shutdown(socket.SHUT_WR)

    def recv_exit_status(self) -> int:
        """The exit status, after `status_event`."""
        return self._process.wait()

    def close(self) -> None:
        """End both ways at once, also for files that are still open."""
        for end in (self, self._errors):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._errors.close()
        super().close()

    def __del__(self) -> None:
        self.close()


def _await_end(process: subprocess.Popen[bytes], ended: threading.Event) -> None:
    process.wait()
    ended.set()


class LocalConnection:
    """As paramiko.SSHClient, and as the transport of one."""

    def open_session(self, timeout: float | None = None) -> LocalChannel:
        """A channel for one command; there is nothing to wait for."""
        return LocalChannel()

    def exec_command(self, command: str, timeout: float | None = None) -> tuple[Any, Any, Any]:
        """Start a command: its stdin, stdout and stderr. `timeout` is in seconds without output."""
        channel = self.open_session()
        channel.settimeout(timeout)
        channel.exec_command(command)
        return channel.makefile("wb"), channel.makefile("rb"), channel.makefile_stderr()
