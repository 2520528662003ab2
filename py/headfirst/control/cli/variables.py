"""`deploy variables`: what an inventory may set."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from headfirst.common.errors import InputError
from headfirst.control.cli import options

EXAMPLE = "Example: deploy variables weights"


def run(
    text: Annotated[
        str | None,
        typer.Argument(help="Only names with this text, those of the roles too.", show_default=False),
    ] = None,
    roles: Annotated[bool, typer.Option("--roles", help="The variables of the roles too.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show the variables of an inventory with their defaults and meanings."""
    from rich.table import Table

    from headfirst.control.terminal import Terminal
    from headfirst.decide.cluster.variables import role_variables, settings_variables

    known = [*settings_variables(), *(role_variables() if roles or text else ())]
    found = [variable for variable in known if text is None or text in variable.name]
    if not found:
        raise InputError(f"no variable has {text!r} in its name", hint="All: deploy variables --roles")
    if as_json:
        typer.echo(json.dumps([variable._asdict() for variable in found], indent=2))
        return
    table = Table("variable", "of", "default", "meaning", box=None)
    table.columns[0].no_wrap = True
    for variable in found:
        table.add_row(*variable)
    Terminal(highlight=False, markup=False).print(table)
