"""The one message of a failed Ansible result that states why, without Ansible's wrapping."""

from __future__ import annotations

import re
from typing import Any

# A result may carry these: a list of {id, severity, host, what, why, fix}, as our check role returns them.
FINDINGS_KEY = "headfirst_findings"
# ansible-core 2.19 puts these in front of what the module or the action returned.
_WRAPPING = re.compile(
    r"^(?:(?:Task|Action|Module) failed:\s*"
    r"|Data could not be sent to remote host \"[^\"]*\"\. Make sure this host can be reached over ssh:\s*"
    r"|Failed to connect to the host via ssh:\s*)"
)
# Printed by ssh on stderr when two tasks open a host's connection at once; harmless.
_NOISE = re.compile(r"^ControlSocket .* already exists, disabling multiplexing$")
_TAIL_LINES = 5


def findings(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The findings in a result; whatever else a node has put there under this name is none."""
    reported = result.get(FINDINGS_KEY)
    if not isinstance(reported, list):
        return []
    return [finding for finding in reported if isinstance(finding, dict) and "severity" in finding]


def failure_message(result: dict[str, Any]) -> str:
    """Why a task failed, from its result (`runner_on_failed` or `runner_on_unreachable` of ansible-runner).

    Reads loops for the first failed item, and at stderr where the message is empty.
    """
    if reported := findings(result):
        return f"{sum(finding['severity'] == 'error' for finding in reported)} not ready"
    if "censored" in result:
        return "the task failed; its output is hidden because it may hold a secret"
    failed_item = _first_failed_item(result)
    if failed_item is not None:
        return failure_message(failed_item)
    errors = result.get("argument_errors")
    if errors and isinstance(errors, list):
        return "; ".join(str(error) for error in errors)
    message = _unwrap(str(result.get("msg", "")))
    if message.startswith(("MODULE FAILURE", "Module result deserialization failed")):
        said = _tail(result.get("module_stderr") or result.get("module_stdout") or result.get("exception"))
        return said or message
    if message == "non-zero return code" or (not message and "rc" in result):
        return _command_message(result)
    return message or _tail(result.get("stderr")) or "the task failed without a reason"


def _unwrap(message: str) -> str:
    while (shorter := _WRAPPING.sub("", message, count=1)) != message:
        message = shorter
    return message.replace("\r\n", "\n").strip()


def _first_failed_item(result: dict[str, Any]) -> dict[str, Any] | None:
    items = result.get("results")
    if not isinstance(items, list):
        return None
    for item in items:
        if isinstance(item, dict) and (item.get("failed") or item.get("unreachable")):
            return item
    return None


def _command_message(result: dict[str, Any]) -> str:
    command = result.get("cmd", "")
    shown = " ".join(map(str, command)) if isinstance(command, list) else str(command)
    said = _tail(result.get("stderr")) or _tail(result.get("stdout")) or "it printed nothing"
    return f"`{shown}` ended with code {result.get('rc')}: {said}"


def _tail(text: object) -> str:
    lines = [line.rstrip() for line in str(text or "").splitlines() if line.strip()]
    lines = [line for line in lines if not _NOISE.match(line)]
    return "\n".join(lines[-_TAIL_LINES:])
