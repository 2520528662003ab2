#!/usr/bin/env python3
"""Writes docs/inventory.md from the types that read the inventory. `--check` only compares, for CI."""

from __future__ import annotations

import sys
from pathlib import Path

from headfirst.cluster.variables import settings_variables

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
    page = "\n".join([HEAD, *_table("For the whole cluster, under `[all:vars]`", "cluster"),
                      "", *_table("For one host, on its line", "host"), ""])  # fmt: skip
    if "--check" not in sys.argv:
        PAGE.write_text(page)
        return 0
    if PAGE.read_text() != page:
        print(f"{PAGE} is not up to date: run tools/inventory_doc.py", file=sys.stderr)
        return 1
    return 0


def _table(title: str, scope: str) -> list[str]:
    rows = [f"## {title}", "", "| variable | default | meaning |", "|---|---|---|"]
    for variable in settings_variables():
        if variable.scope == scope:
            default = f"`{variable.default}`" if variable.default else ""
            rows.append(f"| `{variable.name}` | {default} | {variable.description} |")
    return rows


if __name__ == "__main__":
    sys.exit(main())
