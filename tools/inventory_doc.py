#!/usr/bin/env python3
"""Writes docs/inventory.md from the types that read the inventory. `--check` only compares, for CI."""

from __future__ import annotations

import sys
from pathlib import Path

from headfirst.cluster.settings import ClusterSettings, HostSettings
from pydantic import BaseModel
from pydantic.fields import FieldInfo

PAGE = Path(__file__).resolve().parent.parent / "docs" / "inventory.md"

HEAD = """\
# The inventory

<!-- Written by tools/inventory_doc.py from py/headfirst/cluster/settings.py. Do not edit. -->

An Ansible inventory with up to three groups: `[head]` (exactly one host; it gets rank 0), `[workers]`
(ranks 1, 2, … in the order of the file) and `[webui]` (at most one host; without it the chat page runs
on the head). Ansible's own variables (`ansible_host`, `ansible_user`, `ansible_ssh_private_key_file`, …)
keep their meaning, `group_vars/` and `host_vars/` beside the file are read, and every variable of a role
(`docker_engine_*`, `weights_*`, …: see `roles/*/README.md`) passes through to it.
Any other name is refused, with the line it stands on and the nearest name that exists.
"""


def main() -> int:
    """Write the page, or with --check return 1 when it is not up to date."""
    page = "\n".join([HEAD, *_table("For the whole cluster, under `[all:vars]`", ClusterSettings),
                      "", *_table("For one host, on its line", HostSettings), ""])  # fmt: skip
    if "--check" not in sys.argv:
        PAGE.write_text(page)
        return 0
    if PAGE.read_text() != page:
        print(f"{PAGE} is not up to date: run tools/inventory_doc.py", file=sys.stderr)
        return 1
    return 0


def _table(title: str, model: type[BaseModel]) -> list[str]:
    rows = [f"## {title}", "", "| variable | default | meaning |", "|---|---|---|"]
    return rows + [
        f"| `{name}` | {_default(field)} | {field.description or ''} |"
        for name, field in model.model_fields.items()
    ]


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    return (
        "" if value in (None, "", [], {}) else f"`{str(value).lower() if isinstance(value, bool) else value}`"
    )


if __name__ == "__main__":
    sys.exit(main())
