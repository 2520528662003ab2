"""The command `deploy`: every module below declares its verbs, and the order here is that of the help."""

from __future__ import annotations

import typer

from headfirst import __version__
from headfirst.control.cli.verb import app

__all__ = ["app"]

# isort: off
from headfirst.control.cli import up, rehearse, plan, render, models, variables, bundle, check, live  # noqa: F401
from headfirst.control.cli import diagnose, smoke, bench, access, chats, down, init, lab  # noqa: F401

# isort: on


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"headfirst {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass
