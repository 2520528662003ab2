"""Whether a node has this machine's settings, and the change of a node that has others."""

from __future__ import annotations

from typing import Any

from docker.errors import NotFound
from docker.models.containers import Container

from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import file_listing, for_terminal, json_document
from headfirst.control.lab.host_settings import RECORD, MachineSettings
from headfirst.control.lab.nodes import file_of, name_of

# Certificates of /usr/local/share that were removed must leave the node's bundle, too.
_REMOVE_AND_RENEW = 'rm -f -- "$@" && update-ca-certificates --fresh'


def is_current(container: Container, settings: MachineSettings) -> bool:
    """Whether the node, running or not, has these settings."""
    return bool(_record(container).get("fingerprint") == settings.fingerprint)


def update(container: Container, settings: MachineSettings) -> None:
    """Gives a running node these settings and removes the files of those that it had before.

    Raises NotReadyError with the node's last lines.
    """
    before = set(_files(container))
    for data in settings.archives():
        container.put_archive("/", data)
    stale = sorted(before - set(_files(container)))
    output: Any
    code, output = container.exec_run(["sh", "-c", _REMOVE_AND_RENEW, "sh", *(f"/{path}" for path in stale)])
    if code != 0:
        raise NotReadyError(
            "This machine's settings of apt and pip could not be copied to the node:\n"
            + for_terminal(bytes(output).decode(errors="replace").strip()[-500:]),
            where=name_of(container),
            hint="`deploy lab down`, then the same command again, creates the node again.",
        )


def _files(container: Container) -> list[str]:
    return file_listing(_record(container).get("files", ()), where=name_of(container))


def _record(container: Container) -> dict[str, Any]:
    try:
        text = file_of(container, f"/{RECORD}")
    except NotFound:
        return {}  # the node was made before settings were recorded, or its first start was interrupted
    record = json_document(text, what=RECORD, where=name_of(container), limit=1 << 20)
    return record if isinstance(record, dict) else {}
