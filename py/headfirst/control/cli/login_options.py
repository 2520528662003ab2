"""Ansible's options for passwords, on every verb that reads an inventory: -k, -K and those of Vault."""

from __future__ import annotations

import functools
import getpass
import inspect
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from headfirst.common.errors import InputError
from headfirst.decide.cluster.asked import ASKED

_PANEL = "Passwords"
_OPTIONS: dict[str, Any] = {
    "vault_password_file": Annotated[
        list[Path] | None,
        typer.Option(
            "--vault-password-file",
            "--vault-pass-file",
            help="File with the password of Ansible Vault, or a program that prints it.",
            rich_help_panel=_PANEL,
            show_default=False,
        ),
    ],
    "vault_id": Annotated[
        list[str] | None,
        typer.Option(
            "--vault-id",
            metavar="ID@FILE",
            help="As for Ansible.",
            rich_help_panel=_PANEL,
            show_default=False,
        ),
    ],
    "ask_vault_pass": Annotated[
        bool,
        typer.Option(
            "-J",
            "--ask-vault-pass",
            "--ask-vault-password",
            help="Prompt for the password of Ansible Vault.",
            rich_help_panel=_PANEL,
        ),
    ],
    "ask_pass": Annotated[
        bool, typer.Option("-k", "--ask-pass", help="Prompt for the SSH password.", rich_help_panel=_PANEL)
    ],
    "ask_become_pass": Annotated[
        bool,
        typer.Option("-K", "--ask-become-pass", help="Prompt for sudo's password.", rich_help_panel=_PANEL),
    ],
}


def accepted(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with these options; what they give is in place before it begins."""

    @functools.wraps(verb)
    def with_passwords(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in _OPTIONS}
        _vault(given["vault_password_file"] or [], given["vault_id"] or [], ask=given["ask_vault_pass"])
        if given["ask_pass"]:
            ASKED.login = _ask("SSH password: ")
        if given["ask_become_pass"]:
            ASKED.become = _ask("BECOME password: ") or ASKED.login
        verb(**arguments)

    own = inspect.signature(verb, eval_str=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(name, kind, default=False if name.startswith("ask") else None, annotation=option)
        for name, option in _OPTIONS.items()
    ]
    parameters = [one.replace(kind=kind) for one in own.parameters.values()]
    with_passwords.__signature__ = own.replace(parameters=[*parameters, *more])  # type: ignore[attr-defined]
    with_passwords.__annotations__ = {one.name: one.annotation for one in [*parameters, *more]}
    return with_passwords


def _vault(files: list[Path], identities: list[str], *, ask: bool) -> None:
    """Ansible's own variables: the reader of the inventory and every run inherit them."""
    for path in files:
        if not path.expanduser().exists():
            raise InputError(f"no such file: {path}", where="--vault-password-file")
    named = [*identities, *(str(path.expanduser().absolute()) for path in files)]
    if ask:
        named.append(_kept(_ask("Vault password: ")))
    if named:
        before = os.environ.get("ANSIBLE_VAULT_IDENTITY_LIST")
        os.environ["ANSIBLE_VAULT_IDENTITY_LIST"] = ",".join([*([before] if before else []), *named])


_KEPT: list[Any] = []  # files that are deleted when they are closed: at the end of the process


def _kept(password: str) -> str:
    """A file of this user only, with no name in any folder where the system can do that."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("vault")
        os.fchmod(descriptor, 0o600)
        file: Any = os.fdopen(descriptor, "w")
        path = f"/proc/{os.getpid()}/fd/{descriptor}"
    else:
        file = tempfile.NamedTemporaryFile("w", prefix="headfirst-")  # noqa: SIM115 - closed at the end
        path = file.name
    file.write(password + "\n")
    file.flush()
    _KEPT.append(file)
    return path


def _ask(question: str) -> str:
    if not sys.stdin.isatty():
        raise InputError(
            f"there is no terminal for a prompt: {question.rstrip(': ')}",
            hint="Use --vault-password-file, and passwords as vaulted variables.",
        )
    return getpass.getpass(question)
