"""Ansible's options for passwords, on every verb that reads an inventory: -k, -K and those of Vault."""

from __future__ import annotations

import getpass
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from headfirst.common.errors import InputError


def option(kind: Any, *names: str, **more: Any) -> Any:
    """The annotation of an option."""
    return Annotated[kind, typer.Option(*names, **more)]


OPTIONS: dict[str, Any] = {
    "vault_password_file": option(
        list[Path] | None,
        *("--vault-password-file", "--vault-pass-file"),
        metavar="FILE",
        help="File with the password of Ansible Vault, or a program that prints it.",
    ),
    "vault_id": option(list[str] | None, "--vault-id", metavar="ID@FILE", help="As for Ansible."),
    "ask_vault_pass": option(
        bool,
        *("-J", "--ask-vault-pass", "--ask-vault-password"),
        help="Prompt for the password of Ansible Vault.",
    ),
    "ask_pass": option(bool, "-k", "--ask-pass", help="Prompt for the SSH password."),
    "ask_become_pass": option(bool, "-K", "--ask-become-pass", help="Prompt for sudo's password."),
}


def accept(arguments: dict[str, Any]) -> None:
    """Take the values of these options out of `arguments`, and put what they give in place."""
    files, identities, vault, login, become = (arguments.pop(name) for name in OPTIONS)
    _vault(files or [], identities or [], ask=vault)
    if not login and not become:
        return
    from headfirst.control.inventory.login import ASKED  # it imports pydantic

    if login:
        ASKED.login = _ask("SSH password: ")
    if become:
        ASKED.become = _ask("BECOME password: ") or ASKED.login


def _vault(files: list[Path], identities: list[str], *, ask: bool) -> None:
    """Ansible's own variables: the reader of the inventory and every run inherit them."""
    for path in files:
        if not path.expanduser().exists():
            raise InputError(f"no such file: {path}", where="--vault-password-file")
    vault_ids = [*identities, *(str(path.expanduser().absolute()) for path in files)]
    if ask:
        vault_ids.append(_password_file(_ask("Vault password: ")))
    if vault_ids:
        before = os.environ.get("ANSIBLE_VAULT_IDENTITY_LIST")
        os.environ["ANSIBLE_VAULT_IDENTITY_LIST"] = ",".join([*([before] if before else []), *vault_ids])


_KEPT: list[Any] = []  # files that are deleted when they are closed: at the end of the process


def _password_file(password: str) -> str:
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
