"""`deploy backup` and `deploy restore`: accounts, chats and files of the chat page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headfirst.common import container_names as names
from headfirst.common import untrusted
from headfirst.common.errors import InputError
from headfirst.control.deployment.running.claim import run_lock
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.playbooks import run_stages
from headfirst.control.deployment.running.recorded import recorded
from headfirst.control.inventory.inventory import load
from headfirst.control.run.reporters.reporter import Reporter

_NAME = re.compile(r"\d{8}T\d{6}Z(-\d{1,3})?")


@dataclass(frozen=True)
class Backup:
    """One backup on the host of the chat page. `problem` is why it cannot be restored, "" for none."""

    name: str
    bytes: int
    files: int
    image: str
    reason: str
    problem: str


def take(options: RunOptions, reporter: Reporter) -> tuple[str, list[Backup]]:
    """Make a backup; return its name, "" where there was no data, and all backups, the newest first."""
    stats = _run("backup", options, reporter)
    return _backup_name(stats), _backups(stats)


def listed(options: RunOptions, reporter: Reporter) -> list[Backup]:
    """The backups on the host of the chat page, the newest first."""
    return _backups(_run("backups", options, reporter))


def restore(options: RunOptions, reporter: Reporter, name: str) -> str:
    """Replace accounts, chats and files by a backup, the newest with ""; return its name."""
    if name and not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is not the name of a backup",
            hint=f"List them: deploy restore {options.inventories[0]} --list",
        )
    return _backup_name(_run("restore", options, reporter, {"open_webui_backup": name}))


def _run(
    verb: str, options: RunOptions, reporter: Reporter, more: Mapping[str, str] | None = None
) -> dict[str, Any]:
    cluster = load(options.inventories, options.extra_vars)
    cluster = cluster.limited([cluster.webui.name])
    variables = {"open_webui_name": names.WEBUI, "open_webui_url": cluster.webui_url, **(more or {})}
    with recorded(cluster, options, verb, reporter) as shown, run_lock(cluster, options, verb, shown):
        result = run_stages(f"{verb}.yml", options, cluster, {cluster.webui.name: variables}, shown)
    return {**result.stats, "host": cluster.webui.name}


def _backup_name(stats: Mapping[str, Any]) -> str:
    name = untrusted.line(stats.get("webui_backup"), what="the backup", where=stats["host"], limit=64)
    return name if _NAME.fullmatch(name) else ""


def _backups(stats: Mapping[str, Any]) -> list[Backup]:
    backups = stats.get("webui_backups")
    if not isinstance(backups, list) or not all(isinstance(backup, dict) for backup in backups):
        raise untrusted.UntrustedError("the list of backups is not a list", where=stats["host"])
    return [_backup(backup, stats["host"]) for backup in backups]


def _backup(fields: Mapping[str, Any], where: str) -> Backup:
    def text(key: str) -> str:
        return untrusted.line(fields.get(key, ""), what=f"{key} of a backup", where=where)

    def count(key: str) -> int:
        return untrusted.integer(fields.get(key, 0), what=f"{key} of a backup", where=where)

    return Backup(
        text("name"), count("bytes"), count("files"), text("image"), text("reason"), text("problem")
    )
