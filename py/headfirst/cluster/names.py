"""Which variable names may stand in an inventory. Ansible ignores a misspelled one; we do not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from headfirst.cluster.settings import CLUSTER_NAMES, HOST_NAMES
from headfirst.cluster.source import locate_variable
from headfirst.cluster.variables import role_variables
from headfirst.errors import InputError

# Set by Ansible itself on every host of `ansible-inventory --list`.
_MAGIC = frozenset({"inventory_file", "inventory_dir", "environment", "omit", "playbook_dir", "vars"})


def refuse_unknown(names: Iterable[str], inventories: tuple[Path, ...]) -> None:
    """Raise for the first name that neither Headfirst, a role of it nor Ansible knows."""
    known = CLUSTER_NAMES | HOST_NAMES | {variable.name for variable in role_variables()}
    for name in names:
        if name == "_raw_params":  # where Ansible puts the words of -e that are no KEY=VALUE
            raise InputError(
                "a word of -e is not KEY=VALUE",
                where="extra variables (-e)",
                hint="Quote a value that has spaces: -e 'engine_args=\"--mem-fraction-static 0.8\"'.",
            )
        if name in known or name in _MAGIC or name.startswith("ansible_"):
            continue
        near = setting_of(name) or next(iter(difflib.get_close_matches(name, sorted(known), n=1)), None)
        hint = (
            f"Did you mean {near}?" if near else "`deploy variables --roles` prints the variables that exist."
        )
        raise InputError(
            f"unknown variable {name}",
            where=locate_variable(name, inventories) or "extra variables (-e)",
            hint=hint,
        )


def setting_of(name: str) -> str | None:
    """The setting that a role's variable follows: open_webui_port has webui_port, weights_model has model."""
    found = [setting for setting in CLUSTER_NAMES | HOST_NAMES if name.endswith(f"_{setting}")]
    return max(found, key=len, default=None)
