#!/usr/bin/env python3
"""Writes docs/inventory.md from the types that read the inventory. `--check` only compares, for CI."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import generated
from headfirst.control.inventory.decided import DECIDED
from headfirst.control.inventory.variables import role_options, settings_variables

PAGE = Path(__file__).resolve().parent.parent / "docs" / "inventory.md"
_PAGE_NAME = re.compile(r"\bdocs/([\w/-]+\.md)")

HEAD = """\
# The inventory

<!-- Written by tools/inventory_doc.py from py/headfirst/decide/cluster/settings.py. Do not edit. -->

An Ansible inventory in any form that Ansible reads (INI, YAML, a folder, a program, a plugin). For one model
it has up to three groups: `[head]` (exactly one host; it gets rank 0), `[workers]` (ranks 1, 2, …) and
`[webui]` (at most one host; without it the chat page runs on the head). For several models each group that
sets `model=` is a service: see [Services and replicas](services.md). Ranges (`node[01:16]`), child groups,
`group_vars/`, `host_vars/`, Jinja values and Ansible Vault work as in Ansible, and so do its own variables
(`ansible_host`, `ansible_user`, …: see [SSH logins](ssh-logins.md)). Workers are ranked in the order in
which their group lists them: its own hosts first, then those of its child groups, one group after the
other.

A group `[router]` names the hosts that run [routers](router.md).
The groups `[prefill]` and `[decode]` choose hosts of a service that
[divides prefill and decode](disaggregation.md).
A group `[monitoring]` (at most one host) adds [Prometheus, Grafana and exporters](monitoring.md).

The ranks use IPv4 addresses among themselves: `address`, or else `ansible_host`, or else the host's name. A
name is read from ssh's configuration (`HostName`) and then resolved on this machine; one that does not
resolve, resolves to several addresses or to a loopback address is refused: write `address=` then.

A relative path of a file on this machine (`tls_key`, `api_key_file`, `registry_logins`, `bundle`, …) starts
at the folder of the inventory.

A variable of a role (`docker_engine_*`, `weights_*`, …: see [Roles](reference/roles.md)) passes through to
it, and is checked against its argument specification first. {decided} of the {roles} are refused instead:
those that the plan decides, which that page marks "Set by the plan", and for which a setting below is often
what was meant.

Variables of your own are accepted where a template uses them, where their name starts with `my_` or `x_`,
and where `own_variables` lists them (names or patterns: `own_variables="site_* rack"`). Another unknown
name is refused where it resembles one of the names below or starts like one, with its line and the nearest
name. A name of what is served (`expert_copies`, `max_model_len`) is refused too. Any other name gets a
note of `deploy plan`, which is in its `--json` as well. All wrong variables are in one error, each with its
file and line.

Every setting below may be written with `headfirst_` before its name, for
[an inventory that other programs use too](operations.md#beside-another-teams-variables).
"""


def main() -> int:
    """Write the page, or with --check return 1 when it is not up to date."""
    head = HEAD.format(decided=len(DECIDED), roles=len(role_options()))
    page = "\n".join([head, *_table("For a service, under `[all:vars]` or the service's group", "service"),
                      "", *_table("For the whole cluster, under `[all:vars]`", "cluster"),
                      "", *_table("For one host, on its line", "host"), ""])  # fmt: skip
    return generated.write({PAGE: page})


def _table(title: str, scope: str) -> list[str]:
    rows = [f"## {title}", "", "| variable | default | meaning |", "|---|---|---|"]
    for variable in settings_variables():
        if variable.scope == scope:
            default = f"`{variable.default}`" if variable.default else ""
            rows.append(f"| `{variable.name}` | {default} | {_PAGE_NAME.sub(_link, variable.description)} |")
    return rows


def _link(match: re.Match[str]) -> str:
    """A page that a description names, as a link with the page's title."""
    title = (PAGE.parent / match[1]).read_text("utf-8").partition("\n")[0].removeprefix("# ")
    return f"[{title}]({match[1]})"


if __name__ == "__main__":
    sys.exit(main())
