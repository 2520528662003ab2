"""A node's clock against the controller's, and the times of its logs on the controller's clock."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import paramiko

from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError, for_terminal
from headfirst.control.live.ssh_access import explain
from headfirst.control.live.ssh_access.privileged import privileged
from headfirst.control.live.ssh_access.ssh import ERROR_BYTES, ssh
from headfirst.decide.cluster.login import HostAccess

_PINGS = 5
_MAX_ANSWER = 1024  # characters of a line
LATEST = 1e11  # seconds since 1970


class Clock(NamedTuple):
    """The node is `offset` seconds ahead of the controller; `error`, half the round trip, is how sure."""

    offset: float
    error: float

    def corrected(self, at: float) -> float:
        """A time of the node (seconds since 1970) on the controller's clock."""
        return at - self.offset


def measure(to: Any, out: Any) -> Clock:
    """Ask a running node script for its time; the quickest of a few answers is the surest, as with NTP.

    `to` and `out` are its stdin and stdout. Raises EOFError when it has ended.
    """
    seen = []
    for _ in range(_PINGS):
        before = time.time()
        to.write(b"time\n")
        to.flush()
        answer = out.readline(_MAX_ANSWER)
        after = time.time()
        if not answer:
            raise EOFError("it ended without an answer")
        told = float(answer)
        if not 0 <= told <= LATEST:
            raise ValueError("its clock is not a time")
        seen.append(Clock(told - (before + after) / 2, (after - before) / 2))
    return min(seen, key=lambda clock: clock.error)


def run_script(
    access: HostAccess,
    script: str,
    *arguments: str,
    what: str,
    timeout_s: float,
    limit: int,
    last: str = "go",
) -> tuple[Clock, bytes]:
    """Run a script with the host's Python as the user that Ansible's tasks become; its clock and its answer.

    The script answers its clock for each line `time` on stdin, and all else after the line `last`. `what`
    names the answer. Raises NotReadyError where there is none within `timeout_s` seconds without output, and
    UntrustedError for one of more than `limit` bytes.
    """
    line, first = privileged(access, "python3", "-c", script, *arguments)
    with ssh(access) as connection:
        try:
            to, out, err = connection.exec_command(line, timeout=timeout_s)
            try:
                to.write(first)
                clock = measure(to, out)
                to.write(f"{last}\n".encode())
                to.flush()
                to.channel.shutdown_write()
                answer = out.read(limit + 1)
            except TimeoutError:
                raise
            except (OSError, EOFError, ValueError) as error:
                out.channel.close()  # a script that still waits for us would keep its errors open
                said = for_terminal(err.read(ERROR_BYTES).decode(errors="replace").strip())
                reason = (said.splitlines() or [str(error)])[-1]
                raise explain.not_ready(access, said) or NotReadyError(
                    f"{what} cannot be read: {reason}", where=access.host
                ) from error
        except TimeoutError as error:
            reason = f"it did not answer within {timeout_s:.0f} s"
            raise NotReadyError(reason, where=access.host, hint=access.ssh_command("true")) from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise explain.unreachable(access, str(error)) from error
        if len(answer) > limit:
            out.channel.close()
            raise UntrustedError(f"{what} is larger than {limit} bytes", where=access.host)
    return clock, answer
