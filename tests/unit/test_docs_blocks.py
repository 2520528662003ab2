"""Every fenced block of the documentation is read by the program that a person gives it to, or by its parser.

Commands of Headfirst pass the real parsers of the command line, which run nothing. Inventories are loaded,
plays compared with the argument specifications of their roles, failure rules with their samples, JSON and
Python parsed. Of other programs (PARSED_ONLY) the shell parses the line, and nothing more is checked. Blocks
of translations are equal to those of their pages: tools/docs_translations.py compares them.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from ansible_collections.headfirst.serving.plugins.plugin_utils import engine_log_rules
from command import parsed, succeeds
from documented import ROOT, SHELL, Block, blocks, commands, inline, pages, script
from headfirst.control.inventory.inventory import load
from headfirst.control.inventory.variables import role_options, role_variables, settings_variables
from headfirst.node.supervisor import cli as supervisor
from headfirst.node.weights import cli as weights
from together import together

LANGUAGES = {*SHELL, "ini", "yaml", "json", "python", "text"}
# Programs of others: the shell parses their lines, their options are not checked.
PARSED_ONLY = {
    "ansible-galaxy", "ansible-playbook", "ansible-vault", "apt-get", "chmod", "cp", "curl", "cut", "docker",
    "echo", "git", "journalctl", "mkdir", "openssl", "pip", "printf", "python", "python3", "sed", "sha256sum",
    "ssh", "ssh-keygen", "pytest", "tar", "update-ca-certificates",
    # Coding agents, and what their blocks set.
    "cline", "export", "opencode", "qwen",
    # What `deploy render` writes, and the programs that read it.
    "1-node01.sh", "2-node02.sh", "ask.sh", "cd", "docker-compose", "kubectl", "ls", "make-secrets.sh",
    "sbatch",
}  # fmt: skip
ARGPARSE = {"headfirst-supervisor": supervisor._parser, "headfirst-weights": weights._parser}
# Where a block leaves out what another one has shown: one service on one host.
SERVED = """
[head]
documented ansible_host=192.0.2.250

[all:vars]
ansible_user=root
gpus=8
gpu=H100-80G
model=deepseek-ai/DeepSeek-R1
"""


def test_every_block_has_a_language() -> None:
    assert [f"{one}: {one.language!r}" for one in blocks() if one.language not in LANGUAGES] == []


def all_pass(items: Iterable[Any], check: Callable[[Any], None]) -> None:
    """Fails with a line for each item that `check` refuses."""
    found = []
    for item in items:
        try:
            check(item)
        except (AssertionError, SyntaxError, ValueError, SystemExit, typer.TyperException) as error:
            text = error.format_message() if isinstance(error, typer.TyperException) else str(error)
            place = item.relative_to(ROOT) if isinstance(item, Path) else item
            found.append(f"{place}: {type(error).__name__}: {text}")
    assert not found, "\n".join(found)


def test_commands() -> None:
    all_pass(blocks(*SHELL), runs)


def runs(block: Block) -> None:
    """Refuses a block that its program, or the shell, would refuse."""
    text = script(block)
    assert text.strip(), "no line behind a prompt"
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    for program, *words in commands(text):
        name = program.rpartition("/")[2]
        if name == "deploy":
            parsed(words)
        elif name in ARGPARSE:
            ARGPARSE[name]().parse_args(words)
        elif program == "./test":
            assert {*words} <= suites(), words
        elif program.startswith(("tools/", "./")) and name not in PARSED_ONLY:
            assert (ROOT / program).exists(), program
        else:
            assert name in PARSED_ONLY, f"{name}: parse it here, or add it to PARSED_ONLY"


def test_commands_in_sentences() -> None:
    def parses(page: Path) -> None:
        for text in inline(page):
            if not re.search(r"[…|\[]|VERB", text):
                ((_, *words),) = commands(text)
                parsed(words, complete=False)

    all_pass(pages(), parses)


@pytest.mark.parametrize("block", blocks("ini"), ids=str)
def test_inventories(block: Block, tmp_path: Path) -> None:
    text = block.text if block.text.lstrip().startswith("[") else f"[all:vars]\n{block.text}"
    text = text.replace("engine=stub", "engine=sglang")  # which docs/new-engine.md adds: test_new_engine.py
    (tmp_path / "block.ini").write_text(text, "utf-8")
    inventories = [tmp_path / "block.ini"]
    if not re.search(r"^\[head\]|^\[(?!all)\w+:vars\]\n(?:.*\n)*?model=", text, re.MULTILINE):
        (tmp_path / "served.ini").write_text(SERVED, "utf-8")
        inventories.insert(0, tmp_path / "served.ini")
    assert load(inventories).services


@together("block", blocks("yaml"))
def test_plays_and_other_yaml(block: Block) -> None:
    loaded = yaml.safe_load(block.text)
    items = loaded if isinstance(loaded, list) else []
    for rule in [item for item in items if "pattern" in item]:
        (own, *_) = engine_log_rules.profile({"rules": [rule]}).rules
        assert own.id == rule["id"] and own.producers
    for role in [role for item in items for role in item.get("roles", ())]:
        namespace, _, name = role["role"].rpartition(".")
        assert namespace == "headfirst.serving"
        assert (ROOT / "roles" / name).is_dir(), name
        known = {variable for variable, option in role_options().items() if option["role"] == name}
        assert role.get("vars", {}).keys() <= known


def test_json_and_python() -> None:
    def loads(block: Block) -> None:
        json.loads(block.text) if block.language == "json" else compile(block.text, str(block), "exec")

    all_pass(blocks("json", "python"), loads)


@pytest.mark.parametrize(
    "words", [["plan", "x.ini", "--prob"], ["plann", "x.ini"], ["bench", "--shape", "long"]]
)
def test_a_wrong_command_is_found(words: list[str]) -> None:
    with pytest.raises(typer.TyperException):
        parsed(words)


def suites() -> set[str]:
    """The names that ./test takes."""
    text = (ROOT / "test").read_text("utf-8")
    found = re.findall(r"^    ([a-z |]+)\)", text, re.MULTILINE)
    return {"all", *(name.strip() for names in found for name in names.split("|"))}


def planned_outputs() -> list[tuple[Block, Path, Block]]:
    """Each output of `deploy plan` on a page: the inventory that the page shows, the file, and the output."""
    found, shown = [], None
    for before, block in itertools.pairwise(blocks()):
        shown = before if before.language == "ini" else shown
        command = re.fullmatch(r"deploy plan (inventories/\S+)\n", before.text)
        if block.language == "text" and command and shown and shown.page == block.page:
            found.append((shown, ROOT / command[1], block))
    return found


@pytest.mark.parametrize(("shown", "shipped", "output"), planned_outputs(), ids=str)
def test_outputs_of_the_plan(
    shown: Block, shipped: Path, output: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    (tmp_path / "shown.ini").write_text(shown.text, "utf-8")
    for inventory in (shipped, tmp_path / "shown.ini"):
        printed = succeeds("plan", inventory)
        for line in output.text.splitlines():
            assert line in printed


def test_the_settings_that_replace_commands_exist() -> None:
    known = {variable.name for variable in (*settings_variables(), *role_variables())}
    for page in (ROOT / "docs/by-hand.md", ROOT / "docs/zh-CN/by-hand.md"):
        rows = re.findall(r"^\|.*\|.*\|(.*)\|$", page.read_text("utf-8"), re.MULTILINE)
        names = [name for row in rows for name in re.findall(r"`([^`]*)`", row)]
        assert len(names) > 20
        assert [name for name in names if name.partition("=")[0] not in known and name[:7] != "deploy "] == []


ENGLISH = ("docs/security.md", "Who can reach what")


def threat_model(page: str, heading: str) -> list[list[str]]:
    """The cells of the rows below a heading."""
    section = (ROOT / page).read_text("utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [line.split("|") for line in section.splitlines() if line.startswith("|")]


def named_in(cell: str) -> list[str]:
    return re.findall(r"`((?:unit|network|long|molecule)/[^`]+)`", cell)


def test_what_the_threat_model_calls_nothing_names_a_test_that_there_is() -> None:
    cells = [cell for row in threat_model(*ENGLISH) for cell in row]
    named = {name for cell in cells for name in named_in(cell)}
    assert len(named) > 10
    assert [name for name in named if not any((ROOT / up / name).exists() for up in ("tests", "."))] == []
    assert [cell for cell in cells if len(named_in(cell)) < len(re.findall("(?i)nothing", cell))] == []


def test_both_languages_have_the_same_threat_model() -> None:
    english, chinese = (
        [[named_in(cell) for cell in row] for row in threat_model(*page)]
        for page in (ENGLISH, ("docs/zh-CN/security.md", "谁能触及什么"))
    )
    assert len(english) > 10 and english == chinese


@pytest.mark.parametrize("page", ["docs/security.md", "docs/zh-CN/security.md"])
def test_every_port_that_can_be_set_is_listed(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    names = {variable.name for variable in (*settings_variables(), *role_variables())}
    assert [name for name in sorted(names) if name.endswith("_port") and f"`{name}`" not in text] == []
