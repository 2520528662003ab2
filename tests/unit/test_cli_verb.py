"""`verb` hands a function the shared options that it names, in a RunOptions and an Output."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from headfirst.common.errors import InputError
from headfirst.control.cli.verb import _AFTER, _BEFORE, Output, verb
from headfirst.control.deployment.running.options import BundleRequest, RunOptions
from typer.testing import CliRunner

ALL = [name for name in (*_BEFORE, *_AFTER) if name != "whole_service"]


def call(*words: str, shared: list[str] = ALL, **kind: Any) -> dict[str, Any]:
    """What a fictitious verb is called with."""
    app, given = typer.Typer(), {}

    @verb("deploy hosts cluster.ini", *shared, of=app, **kind)
    def hosts(
        run: RunOptions,
        output: Output,
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
    assert given["output"] == Output(as_json=True, plain=True)
    assert (given["name"], given["quick"]) == ("node1", True)


def test_a_verb_of_whole_services_has_the_same_option() -> None:
    assert call("a.ini", "--service", "chat", shared=["whole_service"])["run"].service == "chat"
    assert call("a.ini", shared=["whole_service"])["run"].service is None


def test_without_options_a_run_is_that_of_its_defaults() -> None:
    given = call("a.ini", shared=[])
    assert (given["run"], given["output"]) == (RunOptions([Path("a.ini")], [], tags=[]), Output())
    unsigned = call("a.ini", "--bundle", "c.tar", "--unsigned", shared=["bundle"])
    assert unsigned["run"].bundle == BundleRequest([Path("c.tar")], None, True, False)
    assert call("a.ini", "--limit", "n1", shared=["service"])["code"] == 2  # no option that it did not name


def test_an_inventory_is_required_but_for_the_option_that_needs_none() -> None:
    with pytest.raises(InputError, match="no inventory is named"):
        call()
    assert call("--quick", unless="quick")["run"].inventories == []
    assert call("a.ini", "-i", "b.ini", inventory="alone")["code"] == 2
    assert call(inventory="required")["code"] == 2
