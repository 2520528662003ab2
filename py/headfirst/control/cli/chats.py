"""`deploy backup` and `deploy restore`: keep a copy of the chats, and bring it back."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from headfirst.common.errors import InputError
from headfirst.control.cli.verb import OutputFormat, verb
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal


@verb("deploy backup cluster.ini", "wait", "json")
def backup(run: RunOptions, output: OutputFormat) -> None:
    """Back up accounts, chats and files of the chat page on its host, while it runs."""
    from headfirst.control.deployment.verbs import webui_backups
    from headfirst.control.run.reporters.reporter import QuietReporter

    name, backups = webui_backups.take(run, QuietReporter())
    if output.as_json:
        typer.echo(json.dumps({"backup": name, "backups": [asdict(backup) for backup in backups]}))
        return
    console = Terminal(highlight=False, soft_wrap=True, markup=False)
    if not name:
        console.print("There are no accounts and chats yet.")
        return
    new = next(backup for backup in backups if backup.name == name)
    console.print(f"{name}: {new.files} files, {new.bytes / 1e6:.1f} MB. Backups on the host: {len(backups)}")
    console.print(f"  Restore it  deploy restore {run.inventories[0]} {name}")


@verb("deploy restore cluster.ini --list", "wait", "json")
def restore(
    run: RunOptions,
    output: OutputFormat,
    name: Annotated[str | None, typer.Argument(help="Name of the backup; without it the newest.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the backups and change nothing.")] = False,
) -> None:
    """Replace accounts, chats and files of the chat page by a backup.

    The page stops for that. The present data are backed up first, and restored if the page does not answer.
    """
    from headfirst.control.deployment.verbs import webui_backups
    from headfirst.control.run.reporters.reporter import QuietReporter

    if list_ and name:
        raise InputError("--list shows all backups, and one is named", hint="Leave one of them out.")
    console = Terminal(highlight=False, soft_wrap=True)
    if not list_:
        restored = webui_backups.restore(run, QuietReporter(), name or "")
        if output.as_json:
            typer.echo(json.dumps({"restored": restored}))
            return
        console.print(f"The chat page serves the backup {restored}.")
        return
    backups = webui_backups.listed(run, QuietReporter())
    if output.as_json:
        typer.echo(json.dumps([asdict(backup) for backup in backups]))
        return
    table = Table("backup", "files", "MB", "of image", "reason", box=None)
    for backup in backups:
        table.add_row(
            backup.name,
            str(backup.files),
            f"{backup.bytes / 1e6:.1f}",
            escape(backup.image),
            escape(f"cannot be restored: {backup.problem}" if backup.problem else backup.reason),
        )
    console.print(table)
