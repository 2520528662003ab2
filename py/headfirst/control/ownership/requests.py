"""Requests to node_script.py on hosts, over SSH, many hosts at the same time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import paramiko

from headfirst.common import untrusted
from headfirst.common.errors import HeadfirstError, NotReadyError
from headfirst.control.live.ssh_access import explain
from headfirst.control.live.ssh_access.privileged import privileged
from headfirst.control.live.ssh_access.ssh import run, ssh, try_each
from headfirst.decide.cluster.login import HostAccess

_SCRIPT = Path(__file__).with_name("node_script.py")
_ANSWER_BYTES = 512 * 1024
TIMEOUT_S = 60.0
MEASURE_TIMEOUT_S = 600.0


def ask(access: HostAccess, do: str, *, timeout_s: float = TIMEOUT_S, **fields: Any) -> dict[str, Any]:
    """The answer of one host. Raises NotReadyError where the host cannot be asked."""
    line, first = privileged(access, "python3", "-c", _SCRIPT.read_text())
    with ssh(access) as connection:
        try:
            # On stdin, because an argument is visible to every user of the host.
            request = json.dumps({"do": do, **fields}).encode()
            code, text, said = run(connection, line, timeout_s, first + request, _ANSWER_BYTES)
        except (OSError, EOFError, paramiko.SSHException) as error:
            reason = f"no answer within {timeout_s:.0f} s" if isinstance(error, TimeoutError) else str(error)
            raise explain.unreachable(access, reason) from error
    if code != 0:
        raise _failure(access, said)
    answer = untrusted.json_document(text, what="the answer", where=access.host, limit=_ANSWER_BYTES, depth=4)
    if not isinstance(answer, dict):
        raise untrusted.UntrustedError("the answer is not a JSON object", where=access.host)
    return answer


def ask_all(
    hosts: Sequence[HostAccess], do: str, *, timeout_s: float = TIMEOUT_S, **fields: Any
) -> dict[str, dict[str, Any]]:
    """The answers by host. Raises the error of the first host that cannot be asked, with all others."""
    answers = try_all(hosts, do, timeout_s=timeout_s, **fields)
    raise_failures(answers)
    return {host: answer for host, answer in answers.items() if not isinstance(answer, HeadfirstError)}


def try_all(
    hosts: Sequence[HostAccess], do: str, *, timeout_s: float = TIMEOUT_S, **fields: Any
) -> dict[str, dict[str, Any] | HeadfirstError]:
    """As ask_all, with the error of each host that cannot be asked in the place of its answer."""
    return try_each(hosts, lambda access: ask(access, do, timeout_s=timeout_s, **fields))


def raise_failures(answers: Mapping[str, Any]) -> None:
    """Raise the first error among the answers; its hint lists the others."""
    errors = [answer for answer in answers.values() if isinstance(answer, HeadfirstError)]
    if not errors:
        return
    first, *further = errors
    also = ["Also:", *(f"  {error.where}: {error.what}" for error in further)] if further else []
    first.hint = "\n".join([*([first.hint] if first.hint else []), *also]) or None
    raise first


def _failure(access: HostAccess, said: str) -> NotReadyError:
    if (error := explain.not_ready(access, said)) is not None:
        return error
    last = (said.strip().splitlines() or ["no reason given"])[-1]
    return NotReadyError(
        f"the owner and lock of the host cannot be handled: {untrusted.shown(last, 300)}",
        where=access.host,
        hint=f"Try: {access.ssh_command('python3', '--version')}",
    )
