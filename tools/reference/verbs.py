"""The page of verbs and options, from the parser of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer.main
from headfirst.control.cli import passwords
from headfirst.control.cli.app import app
from headfirst.node.supervisor import cli as supervisor
from headfirst.node.weights import cli as weights

from reference.text import cell, generated

INTRODUCTION = """\
A clone runs `./deploy`; a package runs `deploy`. `deploy VERB --help` prints the same. An option in two forms
can be written in either; one with `…` can be given several times.
"""
_KINDS: dict[type, str] = {Path: "PATH", str: "TEXT", int: "INTEGER", float: "NUMBER"}


def page() -> str:
    """All verbs of `deploy` in the order of its help, then the programs of the nodes."""
    command: Any = typer.main.get_command(app)
    lines = [
        generated("Verbs and options", "py/headfirst/control/cli"),
        INTRODUCTION,
    ]
    for words, verb in commands(command):
        lines += [f"## {' '.join(words)}", "", verb.help.strip(), "", f"`{_usage(words, verb)}`", ""]
        lines += _options(param for param in verb.params if not _is_password(param))
        if any(_is_password(param) for param in verb.params):
            lines += ["It has the [options for passwords](#options-for-passwords), too.", ""]
        if verb.epilog:
            lines += ["```sh", verb.epilog.removeprefix("Example: "), "```", ""]
    some = command.commands["plan"]
    lines += ["## Options for passwords", "", *_options(filter(_is_password, some.params))]
    for parser in (supervisor._parser(), weights._parser()):
        lines += [f"## {parser.prog}", "", f"{parser.description} A program of a node.", ""]
        lines += _argparse(parser)
    return "\n".join(lines).rstrip() + "\n"


def commands(group: Any, words: tuple[str, ...] = ("deploy",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each verb that does something, with the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


def _is_password(parameter: Any) -> bool:
    return parameter.name in passwords.OPTIONS


def _usage(words: tuple[str, ...], verb: Any) -> str:
    arguments = [param for param in verb.params if param.param_type_name == "argument"]
    names = [f"{_value(param)} …" if param.nargs == -1 else _value(param) for param in arguments]
    usages = [text if param.required else f"[{text}]" for text, param in zip(names, arguments, strict=True)]
    return " ".join([*words, *usages, "[OPTIONS]"])


def _value(parameter: Any) -> str:
    """The word that stands for the value, else its choices, else its type."""
    if parameter.metavar or parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    kind = parameter.type_descriptor.annotation
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    (item,) = get_args(kind) or (kind,)
    return _KINDS[item]


def _options(parameters: Any) -> list[str]:
    rows = []
    for param in parameters:
        if param.param_type_name == "argument":
            names = [f"`{_value(param)}`"]
        else:
            value = "" if param.is_flag or param.count else f" {_value(param)}"
            names = [f"`{name}{value}`" for name in (*param.opts, *param.secondary_opts)]
        several = " …" if param.multiple or getattr(param, "count", False) or param.nargs == -1 else ""
        rows.append(
            f"| {cell(', '.join(names) + several)} | {cell(_default(param))} | {cell(param.help or '')} |"
        )
    return ["| option | default | meaning |", "|---|---|---|", *rows, ""] if rows else []


def _default(parameter: Any) -> str:
    value = parameter.default
    if value in (None, False, "", [], ()) or callable(value) or getattr(parameter, "count", False):
        return ""
    return f"`{getattr(value, 'value', value)}`"


def _argparse(parser: argparse.ArgumentParser) -> list[str]:
    """A heading and a table for each command of a program that uses argparse."""
    (subparsers,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    lines = []
    helps = {action.dest: action.help for action in subparsers._choices_actions}
    for name, command in subparsers.choices.items():
        rows = [_action(action) for action in command._actions if action.dest != "help"]
        lines += [
            f"### {parser.prog} {name}",
            "",
            _sentence(helps.get(name) or command.description or ""),
            "",
        ]
        lines += ["| option | default | meaning |", "|---|---|---|", *rows, ""] if rows else []
    return lines


def _action(action: argparse.Action) -> str:
    word = action.metavar or action.dest.upper()
    value = "" if action.nargs == 0 else f" {word}"
    names = ", ".join(f"`{name}{value}`" for name in action.option_strings) or f"`{word}`"
    text = _sentence((action.help or "") % {"default": action.default})
    if action.choices:
        text = f"{text} One of {', '.join(f'`{choice}`' for choice in action.choices)}.".strip()
    has_default = action.default not in (None, False, "", argparse.SUPPRESS, [])
    default = f"`{action.default}`" if has_default else ""
    default = "required" if action.required and action.option_strings else default
    return f"| {cell(names)} | {cell(default)} | {cell(text)} |"


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ")")) or not text else ".")
