"""Options that several verbs share; the short ones keep Ansible's names and meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headfirst.errors import InputError

InventoryArgument = Annotated[
    Path | None, typer.Argument(metavar="INVENTORY", help="Inventory file or folder.", show_default=False)
]
InventoryOption = Annotated[
    list[Path] | None,
    typer.Option("-i", "--inventory", help="More inventories, as in Ansible.", show_default=False),
]
ExtraVars = Annotated[
    list[str] | None,
    typer.Option(
        "-e", "--extra-vars", metavar="KEY=VALUE|@FILE", help="Extra variables.", show_default=False
    ),
]
Limit = Annotated[
    str | None,
    typer.Option(
        "-l",
        "--limit",
        help="Only these hosts; for stages that prepare hosts: check, host, webui.",
        show_default=False,
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        "-t", "--tags", help="Only these stages: check, host, weights, serve, webui.", show_default=False
    ),
]
Wait = Annotated[
    float,
    typer.Option(
        "--wait", metavar="SECONDS", min=0, help="Wait this long for another run on the same hosts."
    ),
]
Check = Annotated[bool, typer.Option("--check", help="Change nothing; say what would change.")]
Diff = Annotated[bool, typer.Option("--diff", help="Show the differences of changed files in the log.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for machines.")]
Plain = Annotated[bool, typer.Option("--plain", help="Plain lines instead of a live display.")]
Verbose = Annotated[int, typer.Option("-v", "--verbose", count=True, help="More of Ansible in the log.")]


def inventories(argument: Path | None, options: list[Path] | None) -> list[Path]:
    """The inventories named on the command line, the positional one first."""
    found = [*([argument] if argument else []), *(options or [])]
    if not found:
        raise InputError("no inventory is named", hint="For example: deploy plan cluster.ini")
    return found
