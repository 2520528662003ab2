"""Options that several verbs share; the short ones keep Ansible's names and meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headfirst.common.errors import InputError
from headfirst.control.deployment.running.options import BundleRequest

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
        help="Only these hosts; for stages that prepare hosts: check, host, webui, monitoring.",
        show_default=False,
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        "-t",
        "--tags",
        help="Only these stages: check, host, weights, serve, webui, monitoring.",
        show_default=False,
    ),
]
Service = Annotated[
    str | None,
    typer.Option(
        "--service",
        metavar="NAME[/REPLICA]",
        help="Only this service, or this replica of it.",
        show_default=False,
    ),
]
Wait = Annotated[
    float,
    typer.Option(
        "--wait", metavar="SECONDS", min=0, help="Wait this long for another run on the same hosts."
    ),
]
Check = Annotated[bool, typer.Option("--check", help="Change nothing; report what would change.")]
Diff = Annotated[bool, typer.Option("--diff", help="Show the differences of changed files in the log.")]
Probe = Annotated[
    bool, typer.Option("--probe", help="Probe the hosts over SSH for what the inventory omits.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON for machines.")]
Plain = Annotated[bool, typer.Option("--plain", help="Plain lines instead of a live display.")]
Verbose = Annotated[int, typer.Option("-v", "--verbose", count=True, help="More of Ansible in the log.")]


Bundle = Annotated[
    list[Path] | None,
    typer.Option(
        "--bundle",
        metavar="FILE",
        help="Use this bundle as the only source; the older ones first where it contains a difference.",
        show_default=False,
    ),
]
Signers = Annotated[
    Path | None,
    typer.Option(
        "--signers", metavar="FILE", help="Allowed signers of the bundle (ssh-keygen).", show_default=False
    ),
]
Unsigned = Annotated[
    bool, typer.Option("--unsigned", help="Accept a bundle without a signature of an allowed signer.")
]
OlderBundle = Annotated[
    bool,
    typer.Option("--older-bundle", help="Accept a signed bundle that is older than the newest accepted one."),
]


def bundle_request(
    paths: list[Path] | None, signers: Path | None, *, unsigned: bool, older: bool
) -> BundleRequest | None:
    """What --bundle and the options beside it ask for. InputError where they contradict each other."""
    if not paths:
        if signers or unsigned or older:
            raise InputError(
                "--signers, --unsigned and --older-bundle need --bundle", hint="Name it: --bundle FILE"
            )
        return None
    if signers and unsigned:
        raise InputError("--signers and --unsigned exclude each other", hint="Keep one of them.")
    return BundleRequest(paths, signers, unsigned, older)


def inventories(argument: Path | None, options: list[Path] | None) -> list[Path]:
    """The inventories named on the command line, the positional one first."""
    found = [*([argument] if argument else []), *(options or [])]
    if not found:
        raise InputError("no inventory is named", hint="For example: deploy plan cluster.ini")
    return found


def write_file(path: Path, text: str) -> None:
    """Write what the user asked for with -o. InputError where that is not possible."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"the file cannot be written: {error.strerror}", where=str(path)) from None
