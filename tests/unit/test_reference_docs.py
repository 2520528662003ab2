"""The generated reference misses no verb, no field and no role."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import reference_docs as reference
import typer.main
import yaml
from documented import ROOT
from headfirst.common.errors import InputError
from headfirst.control.cli.app import app
from headfirst.decide.plan.types import Plan
from reference import outputs


def verbs(group: Any, words: tuple[str, ...] = ("deploy",)) -> Iterator[tuple[str, Any]]:
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from verbs(one, (*words, name))
        else:
            yield " ".join((*words, name)), one


def printing(verb: Any) -> bool:
    return any("--json" in parameter.opts for parameter in verb.params)


def test_a_page_that_is_not_up_to_date_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["reference_docs.py", "--check"])
    monkeypatch.setattr(reference, "files", lambda: {"verbs.md": "another text"})
    assert reference.main() == 1
    named = capsys.readouterr().err
    assert "verbs.md" in named
    assert "roles.md is not up to date" in named  # a page that nothing writes


def test_every_option_of_every_verb_is_listed() -> None:
    page = (ROOT / "docs/reference/verbs.md").read_text("utf-8")
    parts = {part.partition("\n")[0]: part for part in page.split("\n## ")}
    passwords = parts["Options for passwords"]
    for words, verb in verbs(typer.main.get_command(app)):
        for option in [name for parameter in verb.params for name in parameter.opts if name.startswith("-")]:
            assert f"`{option}" in parts[words] or f"`{option}" in passwords, (words, option)


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_table_of_verbs_has_every_verb(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    rows = re.findall(r"^\| (`deploy .*?`) \|", text, re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"`(?:deploy )?(\w+)", row)}
    assert named == typer.main.get_command(app).commands.keys()  # type: ignore[attr-defined]
    silent = {
        words.removeprefix("deploy ")
        for words, verb in verbs(typer.main.get_command(app))
        if not printing(verb)
    }
    (sentence,) = re.findall(r"^.*(?:take `--json`|都支持 `--json`).*$", text, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", sentence)) == silent


def test_every_module_with_a_verb_is_imported() -> None:
    folder = ROOT / "py/headfirst/control/cli"
    declared = {
        path.stem: len(re.findall(r"^@verb\(", path.read_text("utf-8"), re.MULTILINE))
        for path in folder.glob("*.py")
    }
    imported = {one.callback.__module__.rpartition(".")[2] for _, one in verbs(typer.main.get_command(app))}
    assert {name for name, count in declared.items() if count} == imported, "import it in app.py"


def test_every_verb_with_json_has_its_output() -> None:
    described = {" ".join(one.verb.split(" -")[0].split()) for one in outputs.OUTPUTS} | outputs.EVENTS.keys()
    with_json = {words for words, verb in verbs(typer.main.get_command(app)) if printing(verb)}
    assert with_json == described


def test_the_schema_of_the_plan_has_its_fields_and_their_comments() -> None:
    schema = outputs.schemas()["Plan"]
    assert schema["properties"].keys() >= Plan.model_fields.keys()
    assert (
        schema["$defs"]["WeightsTime"]["properties"]["bottleneck"]["description"]
        == "the stage that takes longest"
    )


def test_exit_codes_metrics_and_roles() -> None:
    folder = ROOT / "docs/reference"
    assert f"| {InputError.exit_code} | `InputError` |" in (folder / "exit-codes.md").read_text("utf-8")
    assert "`sglang:num_running_reqs`" in (folder / "metrics.md").read_text("utf-8")
    page = (folder / "roles.md").read_text("utf-8")
    for spec in ROOT.glob("roles/*/meta/argument_specs.yml"):
        for variable in yaml.safe_load(spec.read_text("utf-8"))["argument_specs"]["main"].get("options", {}):
            assert f"| `{variable}` |" in page


def test_every_rule_is_listed() -> None:
    page = (ROOT / "docs/reference/failures.md").read_text("utf-8")
    rows = re.findall(r"^\| \d+ \|.*$", (ROOT / "docs/diagnose.md").read_text("utf-8"), re.MULTILINE)
    ids = {id for row in rows for cell in row.split("|")[3:5] for id in re.findall(r"`([^`]*)`", cell)}
    assert len(ids) > 80
    assert [id for id in sorted(ids) if f"`{id}`" not in page] == []
