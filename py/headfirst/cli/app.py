"""The `deploy` command: one small module a verb."""

from __future__ import annotations

import typer

from headfirst import __version__
from headfirst.cli import (
    chat,
    check,
    credentials,
    diagnose,
    down,
    init,
    lab,
    logs,
    plan,
    release,
    rollback,
    status,
    up,
    variables,
)

app = typer.Typer(
    name="deploy",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Bare servers that answer on SSH to a multi-node LLM service with a chat page on top.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong input, 3 not ready.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headfirst {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass


for _module in (
    up,
    plan,
    check,
    status,
    logs,
    diagnose,
    chat,
    credentials,
    rollback,
    down,
    release,
    init,
    variables,
):
    app.command(_module.__name__.rpartition(".")[2], epilog=_module.EXAMPLE)(_module.run)
app.add_typer(lab.app, name="lab")
