"""A run that failed → the one error that a person reads: what, where, and what to type next."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from headfirst.common.errors import HeadfirstError, InputError, NotReadyError, StoppedError
from headfirst.control.live.ssh_access import explain
from headfirst.control.run.events import Finding, HostFailed
from headfirst.control.run.result import RunResult
from headfirst.decide.cluster.login import HostAccess

_ENGINE_STAGE = "engine"
_AGAIN = "Run the same command again: it continues where it stopped."
# Long results (a whole file's diff) have their reason near the front or in these keys.
_TEXT_KEYS = ("module_stderr", "module_stdout", "stderr", "exception")
# What programs report when a source outside of the cluster does not answer. Of apt Ansible gives no reason.
_OUTSIDE = re.compile(
    r"Failed to update apt cache|(Could not|Unable to) connect to|Temporary failure|[Cc]onnection timed out|"
    r"No route to host|[Nn]etwork is unreachable|Name or service not known|dial tcp|Max retries exceeded|"
    r"waiting for connection|the hub cannot be used now|cannot be fetched|Proxy Authentication Required"
)
_PROXY = (
    "Behind a proxy, set http_proxy, and http_proxy_login_file if the proxy asks for a login. "
    "If a source is blocked, set a mirror: docs/behind-a-proxy.md.\n"
)


def to_error(
    result: RunResult, access: Mapping[str, HostAccess] | None = None, inventory: Path | str = "INVENTORY"
) -> HeadfirstError:
    """The error for a `result` that is not ok; raise it.

    `access` gives, per host, the SSH details that hints name; commands in hints are for `inventory`.
    NotReadyError (exit 3): a host does not answer, lacks sudo, Python or disk space, or the checks found
    errors. InputError (exit 2): a role was given a wrong variable. HeadfirstError (exit 1): everything else,
    with the task and its message.
    """
    log = f"Ansible's own output: {result.log_file}"
    if result.cancelled:
        return StoppedError("stopped before the end", hint=f"{_AGAIN}\n{log}")
    hosts = access or {}
    if result.unreachable:
        return _by_host(result.unreachable, hosts, log)
    errors = [finding for finding in result.findings if finding.severity == "error"]
    if errors and result.failed:
        return _from_findings(errors, {failure.host: failure for failure in result.silent}, hosts, log)
    if result.failed:
        look = f"The logs of all ranks, by time: deploy diagnose {inventory}"
        of_ranks = any(failure.stage == _ENGINE_STAGE for failure in result.failed)
        return _by_host(result.failed, hosts, f"{look}\n{log}" if of_ranks else log)
    return HeadfirstError(result.ansible_error or "ansible-playbook ended without a reason", hint=log)


def _by_host(failures: Sequence[HostFailed], access: Mapping[str, HostAccess], log: str) -> HeadfirstError:
    """The error of the first failed host; what differs on other hosts is reported after it."""
    first, *further = [_error(failure, access) for failure in failures]
    hosts_of: dict[str, list[str]] = {}
    for failure, error in zip(failures[1:], further, strict=True):
        hosts_of.setdefault(error.what, []).append(failure.host)
    also = [f"{_some(hosts)}: {what}" for what, hosts in hosts_of.items() if what != first.what]
    if same := hosts_of.get(first.what):
        also = [f"{_some(same)}: the same", *also]
    lines = [first.hint or "", *(["Also:", *(f"  {line}" for line in also)] if also else []), log]
    first.hint = "\n".join(line for line in lines if line)
    return first


def _some(hosts: Sequence[str]) -> str:
    """The first three, and how many more there are."""
    return ", ".join(hosts[:3]) + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")


def _error(failure: HostFailed, access: Mapping[str, HostAccess]) -> HeadfirstError:
    login = access.get(failure.host) or HostAccess(failure.host, failure.host)
    said = "\n".join([failure.message, *(str(failure.result.get(key) or "") for key in _TEXT_KEYS)])
    if failure.unreachable:
        return explain.unreachable(login, said.strip())
    if (error := explain.not_ready(login, said)) is not None:
        return error
    if isinstance(failure.result.get("argument_errors"), list):
        return InputError(failure.message, where=failure.host, hint=f"Task: {failure.task}.")
    advice = _PROXY if failure.stage != _ENGINE_STAGE and _OUTSIDE.search(said) else ""
    hint = f"{advice}Stage {failure.stage}, task: {failure.task}."
    return HeadfirstError(failure.message, where=failure.host, hint=hint)


def _from_findings(
    findings: Sequence[Finding],
    silent: Mapping[str, HostFailed],
    access: Mapping[str, HostAccess],
    log: str,
) -> NotReadyError:
    count = "one thing is" if len(findings) == 1 else f"{len(findings)} things are"
    lines = []
    for finding in findings:
        what, fix = f"{finding.what} ({finding.why})" if finding.why else finding.what, finding.fix
        if finding.host in silent:  # here the login is known, on the controller's side of the check it is not
            error = _error(silent[finding.host], access)
            what, fix = error.what, error.hint or ""
        lines.append(f"{finding.host}: {what}")
        if fix:
            lines.append(f"  → {fix}")
    return NotReadyError(f"{count} not ready", hint="\n".join([*lines, log]))
