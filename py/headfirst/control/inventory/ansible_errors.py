"""What Ansible's library complains of while it reads an inventory, as the file, the line and the reason.

A part of ansible_reader.py: it runs in that process alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible._internal._datatag._tags import Origin
from ansible.errors import AnsibleError
from ansible.parsing.vault import AnsibleVaultError

VAULT_HINT = (
    "Use --vault-password-file FILE or --ask-vault-pass, or set ANSIBLE_VAULT_PASSWORD_FILE, as for Ansible."
)


class InventoryRefusal(Exception):
    """What the user wrote cannot be used."""

    def __init__(self, what: str, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.answer = {"what": what, "where": where, "hint": hint}


class RecordingDisplay:
    """Ansible's display, which keeps why a plugin could not read a file instead of printing it."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self.failures: list[tuple[str, AnsibleError]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._display, name)

    def error_as_warning(self, msg: str, exception: AnsibleError) -> None:
        self.failures.append((msg, exception))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it was raised from or during; Ansible wraps both ways."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def place_of(error: BaseException) -> str | None:
    """`file:line` of an error of Ansible's: that of the innermost cause that has a line."""
    place = None
    for cause in _chain(error):
        obj = getattr(cause, "obj", None)
        origin = obj if isinstance(obj, Origin) else Origin.get_tag(obj)
        if origin is not None and origin.path:
            line = origin.line_num or _ini_line(cause)
            if line or place is None:
                place = f"{origin.path}:{line}" if line else str(origin.path)
    return place


def _ini_line(error: BaseException) -> int | None:
    """The line at which Ansible's INI parser stopped: it drops the number before it raises."""
    for cause in _chain(error):
        trace = cause.__traceback__
        while trace is not None:
            frame = trace.tb_frame
            if frame.f_code.co_name == "_parse" and "pending_declarations" in frame.f_locals:
                seen = frame.f_locals
                if "decl" in seen:
                    return int(seen["decl"]["line"])
                lines = [text.strip() for text in seen["lines"]]
                return lines.index(seen["line"]) + 1 if seen.get("line") in lines else None
            trace = trace.tb_next
    return None


def reason(error: BaseException) -> str:
    """The reason in one line: that of the innermost cause, without Ansible's wrapping."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(getattr(error, "_original_message", None) or error)
    return " ".join(text.split()).rstrip(".") or type(error).__name__


def refusal(error: AnsibleError, source: str) -> InventoryRefusal:
    """The error as a refusal; `source` is the inventory, for an error without a place."""
    if is_vault(error):
        return InventoryRefusal("a file is encrypted with Ansible Vault, and no given password decrypts it",
                       place_of(error) or source, VAULT_HINT)  # fmt: skip
    return InventoryRefusal(reason(error), place_of(error) or source)


def unreadable(
    failures: list[tuple[str, AnsibleError]], error: AnsibleError, sources: list[str]
) -> InventoryRefusal:
    """Why the plugin that a file is meant for could not read it; the others' reasons mislead."""
    if not failures:
        return refusal(error, sources[0])
    for _, failure in failures:
        if is_vault(failure):
            return refusal(failure, sources[0])
    place = place_of(failures[-1][1]) or sources[0]
    path = Path(re.sub(r":\d+$", "", place))
    kind = kind_of(path)
    chosen = next(
        (failure for msg, failure in failures if repr(kind) in msg or f".{kind}'" in msg), failures[-1][1]
    )
    return InventoryRefusal(reason(chosen), place_of(chosen) or str(path), None)


def kind_of(path: Path) -> str:
    """Ansible's plugin that a file is meant for: script, auto, yaml or ini."""
    if path.is_file() and os.access(path, os.X_OK):
        return "script"
    head = path.read_text(errors="replace").lstrip() if path.is_file() else ""
    if path.suffix in {".yml", ".yaml", ".json"} or head.startswith(("---", "all:", "{")):
        return "auto" if re.search(r"^plugin\s*:", head, re.MULTILINE) else "yaml"
    return "ini"


def is_vault(error: BaseException) -> bool:
    """Whether a password of Ansible Vault is missing or wrong; Ansible has three kinds of errors for that."""
    text = reason(error).lower()
    return isinstance(error, AnsibleVaultError) or "decrypt" in text or "vault secret" in text


def vaulted(key: str, where: str | None) -> InventoryRefusal:
    """The refusal of a variable that no given password decrypts."""
    what = f"{key} is encrypted with Ansible Vault, and no given password decrypts it"
    return InventoryRefusal(what, where, VAULT_HINT)
