"""`deploy replace` and `deploy remove`: a host leaves the cluster, and a spare may take its place.

The inventory is changed first, so that a run that is interrupted goes on with `deploy up`.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headfirst.common.errors import HeadfirstError, InputError, UnreachableError
from headfirst.common.state_files import rewrite_file, text_of
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.claim import run_lock
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.recorded import recorded
from headfirst.control.deployment.verbs.down import down, target_of
from headfirst.control.deployment.verbs.up import UpOutcome, up
from headfirst.control.deployment.verbs.up_stages import refuse_unfit
from headfirst.control.inventory.edit import with_spare, without
from headfirst.control.inventory.inventory import load
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.decide.cluster.types import Cluster


@dataclass(frozen=True)
class Change:
    """A change of the inventory `path` that its hosts can carry; `leaving` is the host that goes."""

    path: Path
    before: str
    after: str
    leaving: str
    verb: Literal["replace", "remove"]

    @property
    def diff(self) -> list[str]:
        """The change, as a unified diff."""
        before, after = self.before.splitlines(), self.after.splitlines()
        return [*difflib.unified_diff(before, after, str(self.path), str(self.path), lineterm="", n=1)]


def replacement(options: RunOptions, old: str, new: str, *, keep: bool) -> Change:
    """`old` leaves, or with `keep` becomes a spare, and the spare `new` has its place."""
    path = options.inventories[0].absolute()
    after = with_spare(path, old, new, options.extra_vars, keep=keep)
    return _checked(Change(path, text_of(path), after, old, "replace"), options)


def removal(options: RunOptions, host: str) -> Change:
    """`host` leaves the cluster."""
    path = options.inventories[0].absolute()
    after = without(path, host, options.extra_vars)
    return _checked(Change(path, text_of(path), after, host, "remove"), options)


def carry_out(change: Change, options: RunOptions, reporter: Reporter) -> UpOutcome:
    """Stop what the leaving host runs, write the inventory, and bring the cluster up."""
    cluster = load(options.inventories, options.extra_vars)
    remaining_hosts = cluster.limited(host.name for host in cluster.hosts if host.name != change.leaving)
    with recorded(cluster, options, change.verb, reporter) as shown:
        # No other run may change the cluster by the inventory that is written here.
        with _unchanged_on_error(), run_lock(remaining_hosts, options, change.verb, shown) as lease:
            _stop(change, cluster, options, shown)
            lease.confirm()
            _write(change)
        return up(options, shown)


def _checked(change: Change, options: RunOptions) -> Change:
    """The change. InputError where the hosts that stay cannot carry the services."""
    with _beside(change) as draft:
        prepared = prepare([draft], options.extra_vars, probe=True)
    refuse_unfit(prepared.plan)
    return change


@contextlib.contextmanager
def _beside(change: Change) -> Iterator[Path]:
    """The changed inventory as a file beside the present one, where its group_vars are found."""
    stem, suffix = change.path.stem, change.path.suffix
    try:
        descriptor, name = tempfile.mkstemp(suffix, f".{stem}.", change.path.parent)
    except OSError as error:
        what = f"no file can be written beside the inventory: {error.strerror}"
        raise InputError(what, where=str(change.path), hint="Run this as the owner of its folder.") from None
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(change.after.encode(errors="surrogateescape"))
        yield draft
    except HeadfirstError as error:
        if (error.where or "").startswith(str(draft)):  # it is gone, and its lines are others
            error.where = str(change.path)
        raise
    finally:
        draft.unlink()


def _stop(change: Change, cluster: Cluster, options: RunOptions, reporter: Reporter) -> None:
    """A host that does not answer keeps what it has: the others refuse it when it returns."""
    if change.leaving not in {host.name for host in cluster.nodes}:
        return
    try:
        down(target_of(cluster.limited([change.leaving]), options), reporter, data=False)
    except UnreachableError as error:
        what = f"its rank was not stopped: {error.what}"
        fix = "The other hosts no longer answer it. When it answers again, it stops its rank."
        reporter.warn("lock", "left-host", change.leaving, what, fix)


@contextlib.contextmanager
def _unchanged_on_error() -> Iterator[None]:
    try:
        yield
    except HeadfirstError as error:
        error.hint = f"The inventory was not changed. {error.hint or ''}".strip()
        raise


def _write(change: Change) -> None:
    if text_of(change.path) != change.before:
        raise InputError("the inventory was changed meanwhile", where=str(change.path), hint="Run it again.")
    try:
        rewrite_file(change.path, change.after)
    except OSError as error:
        what = f"the inventory cannot be written, or not as its owner's: {error.strerror}"
        raise InputError(what, where=str(change.path), hint="Run this as the owner of the file.") from None
