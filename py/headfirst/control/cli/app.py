"""The `deploy` command: one small module a verb."""

from __future__ import annotations

import typer

from headfirst import __version__
from headfirst.control.cli import (
    backup,
    bench,
    bundle,
    chat,
    check,
    credentials,
    diagnose,
    down,
    events,
    init,
    keys,
    lab,
    logs,
    models,
    plan,
    release,
    remove,
    render,
    replace,
    report,
    restore,
    rollback,
    status,
    test,
    top,
    tune,
    up,
    variables,
)

app = typer.Typer(
    name="deploy",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Turn servers with SSH into a multi-node LLM service with a chat page.",
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
    render,
    bundle,
    models,
    check,
    status,
    top,
    logs,
    events,
    diagnose,
    report,
    chat,
    test,
    bench,
    tune,
    credentials,
    backup,
    restore,
    rollback,
    replace,
    remove,
    down,
    release,
    init,
    variables,
):
    app.command(_module.__name__.rpartition(".")[2], epilog=_module.EXAMPLE)(_module.run)
app.add_typer(keys.app, name="keys")
app.add_typer(lab.app, name="lab")
