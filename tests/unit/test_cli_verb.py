"""`verb` hands a function the shared options that it names, in a RunOptions and an OutputFormat."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, cast

import pytest
import typer
from headfirst.common.errors import InputError
from headfirst.control.cli.app import app as deploy
from headfirst.control.cli.verb import _AFTER, _BEFORE, OutputFormat, verb
from headfirst.control.deployment.running.options import BundleRequest, RunOptions
from typer.testing import CliRunner

ALL: list[Any] = [name for name in (*_BEFORE, *_AFTER) if name not in ("whole_service", "shown_hosts")]


def call(*words: str, shared: list[Any] = ALL, **kind: Any) -> dict[str, Any]:
    """What a fictitious verb is called with."""
    app, given = typer.Typer(), {}

    @verb("deploy hosts cluster.ini", *shared, of=app, **kind)
    def hosts(
        run: RunOptions,
        output: OutputFormat,
        name: Annotated[str, typer.Argument()] = "",
        quick: Annotated[bool, typer.Option("--quick")] = False,
    ) -> None:
        given.update(run=run, output=output, name=name, quick=quick)

    done = CliRunner().invoke(app, words)
    if isinstance(done.exception, InputError):
        raise done.exception
    return {**given, "code": done.exit_code, "printed": done.output}


def test_every_shared_option_arrives() -> None:
    words = (
        "a.ini node1 -i b.ini -e x=1 -e y=2 -l n1 -t check -t host --service chat/1 --quick --check --diff"
    )
    more = "--wait 2.5 --bundle c.tar --signers s --older-bundle --json --plain -vv"
    given = call(*words.split(), *more.split())
    assert given["run"] == RunOptions(
        [Path("a.ini"), Path("b.ini")],
        ["x=1", "y=2"],
        limit="n1",
        tags=["check", "host"],
        check=True,
        diff=True,
        verbosity=2,
        service="chat/1",
        wait_s=2.5,
        bundle=BundleRequest([Path("c.tar")], Path("s"), False, True),
    )
    assert given["output"] == OutputFormat(as_json=True, plain=True)
    assert (given["name"], given["quick"]) == ("node1", True)


def test_a_verb_of_whole_services_has_the_same_option() -> None:
    assert call("a.ini", "--service", "chat", shared=["whole_service"])["run"].service == "chat"
    assert call("a.ini", shared=["whole_service"])["run"].service is None


def test_without_options_a_run_is_that_of_its_defaults() -> None:
    given = call("a.ini", shared=[])
    assert (given["run"], given["output"]) == (RunOptions([Path("a.ini")], [], tags=[]), OutputFormat())
    unsigned = call("a.ini", "--bundle", "c.tar", "--unsigned", shared=["bundle"])
    assert unsigned["run"].bundle == BundleRequest([Path("c.tar")], None, True, False)
    assert call("a.ini", "--limit", "n1", shared=["service"])["code"] == 2  # no option that it did not name


def test_an_inventory_is_required_but_for_the_option_that_needs_none() -> None:
    with pytest.raises(InputError, match="no inventory is named") as refused:
        call(unless="quick")
    assert refused.value.hint == "For example: deploy hosts cluster.ini. Without an inventory: --quick"
    assert call("--quick", unless="quick")["run"].inventories == []
    assert call("a.ini", "-i", "b.ini", inventory="alone")["code"] == 2
    assert call(inventory="required")["code"] == 2


# What sets each shared option, and what of RunOptions and OutputFormat has it then.
MARKS = {
    "service": ("s", "service='s'"), "whole_service": ("s", "service='s'"),
    "limit": ("l", "limit='l'"), "shown_hosts": ("l", "limit='l'"),
    "check": (True, "check=True"), "diff": (True, "diff=True"), "wait": (7.0, "wait_s=7.0"),
    "tags": (["t"], "tags=['t']"), "verbose": (3, "verbosity=3"), "extra_vars": (["x=1"], "['x=1']"),
    "json": (True, "as_json=True"), "plain": (True, "plain=True"), "bundle": ([Path("b")], "PosixPath('b')"),
    "signers": (Path("s"), "signers=PosixPath('s')"), "older_bundle": (True, "older=True"),
    "inventories": ([Path("i")], "PosixPath('i')"),
}  # fmt: skip


def verbs(group: typer.Typer = deploy) -> Iterator[Callable[..., None]]:
    """The command of every verb of `deploy`."""
    yield from (command.callback for command in group.registered_commands if command.callback)
    for inner in group.registered_groups:
        yield from verbs(cast(typer.Typer, inner.typer_instance))


@pytest.mark.parametrize("command", [*verbs()], ids=lambda command: command.__qualname__)
def test_each_option_that_a_verb_accepts_arrives_in_its_function(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived: dict[str, Any] = {}
    cell = command.__closure__[command.__code__.co_freevars.index("function")]
    function = cell.cell_contents
    monkeypatch.setattr(
        cell, "cell_contents", functools.wraps(function)(lambda **given: arrived.update(given))
    )
    parameters = inspect.signature(command).parameters
    given = dict.fromkeys(parameters) | {"inventory": Path("a.ini")} if "inventory" in parameters else {}
    accepted = [name for name in MARKS if name in parameters]
    command(**dict.fromkeys(parameters) | given | {name: MARKS[name][0] for name in accepted})
    seen = repr((arrived.get("run"), arrived.get("output")))
    assert [name for name in accepted if MARKS[name][1] not in seen] == []
    assert arrived.keys() == inspect.signature(function).parameters.keys()


def test_no_option_of_a_verb_has_the_name_of_a_shared_one() -> None:
    """The shared option would swallow it."""
    shared: dict[str, set[str]] = {}
    own: list[tuple[str, set[str]]] = []
    for command in verbs():
        names = inspect.signature(inspect.unwrap(command)).parameters.keys() - {"run", "output"}
        app = typer.Typer()
        app.command()(command)
        for option in typer.main.get_command(app).params:
            spelt = {str(option.name), *option.opts, *option.secondary_opts}
            if option.name in names:
                own.append((f"{command.__qualname__} {option.name}", spelt))
            else:
                shared[str(option.name)] = spelt
    assert {"service", "limit", "wait", "vault_id", "inventory"} <= shared.keys()
    taken = set().union(*shared.values())
    assert [(verb, spelt & taken) for verb, spelt in own if spelt & taken] == []
