"""The page of the rules that find failures, from the rules themselves."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.headfirst.serving.plugins.plugin_utils import (
    check_differences,
    check_findings,
    check_rules,
    comm_rules,
    engine_log_rules,
)
from headfirst.decide import engines

from reference.text import cell, generated

INTRODUCTION = """\
A finding of `deploy check` and a cause of `deploy diagnose` have the id of a rule. This page lists them;
[Check and diagnose](../diagnose.md) has the same by failure. Words in braces are filled in.
"""


def page() -> str:
    """Rules of `check`, of `check --comm`, on logs of each engine, and on states."""
    generic = engine_log_rules.profile({}).rules
    lines = [generated("Failure rules", "the rules of role check and of deploy diagnose"), INTRODUCTION]
    lines += ["## deploy check", "", *_checked(check_rules.RULES)]
    lines += ["## deploy check: hosts that differ", "", *_checked(check_differences.DIFFERENCES)]
    lines += [
        f"Also compared: {_ids(check_findings.COMPARED)}. Rules of `deploy check --comm`:"
        f" {_ids(comm_rules.RULES)} ([what each means](../comm.md)).",
        "",
        "## deploy diagnose: logs of every engine",
        "",
        *_diagnosed(generic),
    ]
    generic_rules = {(rule.id, rule.means, rule.fix) for rule in generic}
    for engine in map(engines.get, engines.names()):
        of_engine = engine_log_rules.profile(engine.log()).rules
        changed = [rule for rule in of_engine if (rule.id, rule.means, rule.fix) not in generic_rules]
        lines += [f"## deploy diagnose: logs of {engine.title}", "", *_diagnosed(changed)]
    lines += [
        "## deploy diagnose: states of the ranks",
        "",
        *_diagnosed(engine_log_rules.conditions().values()),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _checked(rules: Iterable[check_rules.CheckRule | check_differences.HostComparison]) -> list[str]:
    in_order = sorted(rules, key=lambda rule: rule.id)
    rows = [f"| `{rule.id}` | {rule.severity} | {cell(rule.why)} | {cell(rule.fix)} |" for rule in in_order]
    return ["| rule | severity | why it matters | what to do |", "|---|---|---|---|", *rows, ""]


def _diagnosed(rules: Iterable[engine_log_rules.LogRule | engine_log_rules.ConditionRule]) -> list[str]:
    rows = [f"| `{rule.id}` | {cell(rule.means)} | {cell(rule.fix)} |" for rule in rules]
    return ["| rule | what is so of the rank | what to do |", "|---|---|---|", *sorted(rows), ""]


def _ids(ids: Iterable[str]) -> str:
    return ", ".join(f"`{id}`" for id in ids)
