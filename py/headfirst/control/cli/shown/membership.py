"""A change of the inventory on a terminal: the difference, then the run."""

from __future__ import annotations

import json

from rich.markup import escape

from headfirst.control.cli.reporting import choose_reporter, print_summary
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs.membership import Change, carry_out
from headfirst.control.terminal import Terminal


def print_and_carry_out(
    change: Change, wanted: RunOptions, *, check: bool, as_json: bool, plain: bool
) -> None:
    """Print how the inventory changes, and unless `check` carry it out."""
    if as_json:
        print(json.dumps({"event": "inventory_changes", "host": change.leaving, "diff": change.diff}))
    else:
        console = Terminal(highlight=False, soft_wrap=True)
        for line in change.diff:
            console.print(escape(line))
    if check:
        return
    with choose_reporter(as_json=as_json, plain=plain) as reporter:
        outcome = carry_out(change, wanted, reporter)
    print_summary(outcome, as_json=as_json)
