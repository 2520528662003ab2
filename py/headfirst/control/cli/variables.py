"""`deploy variables`: the variables of an inventory."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from headfirst.common.errors import InputError
from headfirst.control.cli.verb import OutputFormat, verb


@verb("deploy variables weights", "json", inventory="none")
def variables(
    output: OutputFormat,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="WORD", help="Only those with this word in name or meaning, those of the roles too."
        ),
    ] = None,
    roles: Annotated[bool, typer.Option("--roles", help="The variables of the roles too.")] = False,
) -> None:
    """Show the variables of an inventory with their defaults and meanings."""
    from headfirst.control.inventory.variables import find
    from headfirst.control.terminal import Terminal, wrapped

    matches = find(text or "", roles=roles)
    if not matches:
        raise InputError(
            f"no variable has {text!r} in its name or meaning", hint="All: deploy variables --roles"
        )
    if output.as_json:
        typer.echo(json.dumps([variable._asdict() for variable in matches], indent=2))
        return
    console = Terminal(highlight=False, markup=False)
    for variable in matches:
        default = f", default {variable.default}" if variable.default else ""
        default = ", set by the plan" if variable.decided else default
        console.print(f"{variable.name}  ({variable.scope}{default})", soft_wrap=True)
        console.print(wrapped(variable.description, console.width, "    "), soft_wrap=True)
