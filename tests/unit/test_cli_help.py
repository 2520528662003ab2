"""Help and the list of variables at 80 columns: no text is lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from headfirst.control.cli.app import app
from headfirst.control.inventory.variables import role_variables, settings_variables
from typer.testing import CliRunner

sys.path.append(str(Path(__file__).parents[2] / "tools"))
from reference.verbs import commands

VERBS = dict(commands(typer.main.get_command(app)))


def _printed(*words: str) -> str:
    result = CliRunner().invoke(app, words, env={"COLUMNS": "80"}, terminal_width=80)
    assert result.exit_code == 0, result.output
    return result.output


def _flat(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_help_prints_every_option_with_its_whole_text(words: tuple[str, ...]) -> None:
    verb: Any = VERBS[words]
    printed = _printed(*words[1:], "--help")
    assert all(len(line) <= 80 for line in printed.splitlines()), printed
    for param in verb.params:
        assert _flat(param.help or "") in _flat(printed), param.name
        names = (*param.opts, *param.secondary_opts) if param.param_type_name == "option" else ()
        assert all(name in printed for name in names)


def test_the_list_of_verbs_has_whole_sentences() -> None:
    printed = _printed("--help")
    assert "..." not in printed.partition("Commands:")[2]
    for words, verb in VERBS.items():
        if len(words) == 2:
            assert _flat(verb.short_help) in _flat(printed)


def test_variables_print_every_meaning_whole() -> None:
    printed = _flat(_printed("variables", "--roles"))
    for variable in (*settings_variables(), *role_variables()):
        assert _flat(f"{variable.name}({variable.scope}") in printed
        assert _flat(variable.description) in printed


def test_a_word_is_searched_in_meanings_too_and_settings_come_first() -> None:
    found = json.loads(_printed("variables", "TOOL CALLS", "--json"))
    assert [variable["name"] for variable in found] == ["parsers"]
    scopes = [variable["scope"] for variable in json.loads(_printed("variables", "weights", "--json"))]
    ours = [scope in ("service", "cluster", "host") for scope in scopes]
    assert ours == sorted(ours, reverse=True)


def test_a_word_that_nothing_has_is_refused() -> None:
    result = CliRunner().invoke(app, ["variables", "xyzzy"])
    assert "name or meaning" in str(result.exception)
