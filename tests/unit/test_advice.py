"""Advice is true: what rules, checks and errors tell a person to type is parsed, loaded and planned.

Commands pass the command line's own parser. A setting is written into an inventory and planned with the
engine of the rule: one of the inventory, a flag of engine_args, a variable of engine_env; also what a person
is told to remove, for what no plan accepts is in no inventory.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer
from ansible_collections.headfirst.serving.plugins.plugin_utils import (
    check_differences,
    check_rules,
    engine_log_rules,
)
from command import parsed
from failure_lines import PROFILES, matched
from headfirst.common.errors import HeadfirstError
from headfirst.control.deployment.prepare import prepare
from headfirst.control.inventory.variables import role_variables, settings_variables
from headfirst.decide import engines

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = {variable.name for variable in (*settings_variables(), *role_variables())}
HOSTS = "[head]\nn1 ansible_host=192.0.2.1\n[workers]\nn2 ansible_host=192.0.2.2\n[all:vars]"
SERVED = ("gpu=H100-80G", "gpus=8", "nic=eth0", "hca=mlx5_0", "model=Qwen/Qwen3-32B")
# What a flag is given where the advice has no value and the engine's default is none.
VALUES = {
    **dict.fromkeys(("--max-model-len", "--context-length", "--session-len"), "8192"),
    **dict.fromkeys(("--mem-fraction-static", "--cache-max-entry-count"), "0.8"),
    "--quantization": "fp8",
}
# What makes sense beside other settings only: one of these is with it.
MORE = ((), ("prefill_replicas=1", "decode_replicas=1"), ("engine_image=registry.example/engine:v1",))
# Examples of a name, an address or a folder of the reader's own.
EXAMPLES = {"model", "address", "model_source=path"}
COMMAND = re.compile(r"`((?:deploy|ANSIBLE_\w+=\S+ deploy) [^`]*|deploy)`")
SETTING = re.compile(r"""(?<![\w/=-])([a-z][a-z_]+)="?([^\s,;:()`"[]*[^\s,;:()`"[.])""")
FLAG = re.compile(r"(?<![\w-])(--[a-z][\w-]+)(?:[= ](\d[\d.]*|[a-z]+16|[A-Z_]+=\S+))?")
ENVIRONMENT = re.compile(r"(?<![\w.-])([A-Z][A-Z0-9]+_[A-Z0-9_]+)(?:=([\w./:-]*\w))?")


def advice() -> Iterator[tuple[str, str | None, str]]:
    """Place, engine (None: any) and text of each advice that a rule or a check gives."""
    generic = PROFILES["generic"].rules
    for name in engines.names():
        for rule in PROFILES[name].rules:
            for line in matched(name, rule.id) or [""]:
                yield f"{name}: {rule.id}", name, rule.words(line, {})[1]
    assert generic
    for condition in engine_log_rules.conditions().values():
        yield condition.id, None, condition.fix
    for check in (*check_rules.RULES, *check_differences.DIFFERENCES):
        yield check.id, None, check.fix


@cache
def hints() -> list[tuple[str, str]]:
    """Place and text of the hints in errors and of advice in plans that are written out in the code."""
    return [*_hints()]


def _hints() -> Iterator[tuple[str, str]]:
    for path in sorted([*ROOT.glob("py/headfirst/**/*.py"), *ROOT.glob("plugins/**/*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg in ("hint", "fix"):
                for text in (_text(part) for part in ast.walk(node.value)):
                    if text:
                        yield f"{path.relative_to(ROOT)}:{node.value.lineno}", text


def _text(node: ast.AST) -> str:
    """The text of a literal, with X for what is filled in; "" of what is none."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_commands_are_parsed() -> None:
    texts = {(place, text) for place, _, text in advice()} | {*hints()}
    found = {(place, command) for place, text in texts for command in COMMAND.findall(text)}
    assert len(found) > 80
    assert {place: problem for place, command in sorted(found) if (problem := unparsed(command))} == {}


def unparsed(command: str) -> str:
    """What the command line does not take; "" where it takes the command."""
    words = shlex.split(re.sub(r"\{[^{}]*\}", "1", command))
    words = words[words.index("deploy") + 1 :]
    if not words or re.search(r"[…|\[]|VERB", command):
        return ""
    try:
        parsed(words, complete=False)
    except typer.TyperException as error:
        return f"{command}: {error.format_message()}"
    return ""


def lines(text: str) -> set[str]:
    """The lines of an inventory that an advice proposes, or tells to remove."""
    settings = [(name, value) for name, value in SETTING.findall(text) if name in VARIABLES]
    found = {f"{name}={value}" for name, value in settings if not {name, f"{name}={value}"} & EXAMPLES}
    for sentence in re.split(r"(?<=[.;]) ", text):
        if "engine_args" in sentence:
            found |= {f"engine_args={flag} {value}".strip() for flag, value in FLAG.findall(sentence)}
        if "engine_env" in sentence:
            found |= {f"engine_env={name}={value or 1}" for name, value in ENVIRONMENT.findall(sentence)}
    return found


def test_settings_are_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    places: dict[tuple[str | None, str], str] = {}
    for place, engine, text in [*advice(), *((place, None, text) for place, text in hints())]:
        places |= {(engine, line): place for line in lines(text) if "X" not in line}
    assert len(places) > 80
    groups: dict[tuple[str | None, bool], list[str]] = {}
    for engine, line in sorted(places, key=str):
        groups.setdefault((engine, line.startswith("engine_args")), []).append(line)
    found = {}
    for (engine, _), its in groups.items():
        if nowhere(tmp_path, its, engine):  # else one plan has them all
            for line in its:
                if problems := nowhere(tmp_path, [line], engine):
                    found[places[engine, line]] = problems
    assert found == {}


def nowhere(folder: Path, its: list[str], engine: str | None) -> list[str]:
    """Why the engine (None: each of them) refuses these lines; nothing where one takes them."""
    problems: list[str] = []
    for name in [engine] if engine else engines.names():
        problems.append(refused(folder, its, name))
        if not problems[-1]:
            return []
    return problems


def _words(engine: str, line: str) -> tuple[str, str]:
    """Name and value of a line; a flag without a value has one that the engine takes."""
    name, _, value = line.partition("=")
    option = engines.get(engine).specification.options.get(value) if name == "engine_args" else None
    if option is None or option["type"] == "flag":
        return name, value
    named = *option.get("choices", ()), *option.get("registered", ())
    given = [VALUES.get(value), *named, option.get("default"), 1]
    return name, f"{value} {next(word for word in given if word not in (None, ''))}"


def refused(folder: Path, its: list[str], engine: str) -> str:
    """Why no plan has these lines with the engine; "" where one has."""
    settings: dict[str, str] = {}
    for name, value in (_words(engine, line) for line in its):
        several = name in ("engine_args", "engine_env") and name in settings
        settings[name] = f"{settings[name]} {value}" if several else value
    kept = [line for line in SERVED if line.partition("=")[0] not in settings]
    kept += [f"engine={engine}", f"engine_version={engines.get(engine).version}"]
    tried = [f'{name}="{value}"' for name, value in settings.items()]
    problem = ""
    for more in MORE:
        (folder / "tried.ini").write_text("\n".join([HOSTS, *kept, *more, *tried]), "utf-8")
        try:
            prepare([folder / "tried.ini"], [], probe=False)
        except HeadfirstError as error:
            problem = problem or f"{engine}: {error.what}"
            continue
        return ""
    return problem


def test_advice_that_a_plan_refuses_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    unset, unknown = "Remove CUDA_VISIBLE_DEVICES from engine_env.", "Add --no-such-flag to engine_args."
    for text in (unset, unknown, "Set kv_transfer=no."):
        assert refused(tmp_path, [*lines(text)], "vllm")
    assert unparsed("deploy plan --prob") and unparsed("deploy plann x.ini") and not unparsed("deploy up")
