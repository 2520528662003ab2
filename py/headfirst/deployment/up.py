"""`deploy up`: this machine's part first, then the playbook, then what a person needs to know."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from headfirst.cluster.secrets import Secrets, credentials_file
from headfirst.cluster.types import Cluster
from headfirst.deployment import artifacts, hardware
from headfirst.deployment.claim import Claim, claimed, peek
from headfirst.deployment.hub_access import hub_token
from headfirst.deployment.lab_nodes import lab_access, lab_of, share_demo_checkpoint
from headfirst.deployment.limit import refuse_limit
from headfirst.deployment.local_work import ask_for_root, run_jobs
from headfirst.deployment.options import RunOptions
from headfirst.deployment.prepare import Prepared, prepare
from headfirst.deployment.role_vars import role_vars
from headfirst.deployment.stages import run_stages
from headfirst.deployment.tags import checked_tags
from headfirst.errors import InputError
from headfirst.lab import packages
from headfirst.lab import up as lab_up
from headfirst.plan.types import Plan
from headfirst.run.forks import require_all
from headfirst.run.reporter import Reporter
from headfirst.run.result import RunResult, StageTime

LocalWork = tuple[dict[str, Any], list[StageTime]]


@dataclass(frozen=True)
class Outcome:
    """A run that ended well, and what to tell about it."""

    plan: Plan
    result: RunResult
    credentials: Path
    inventory: Path
    check: bool


def up(options: RunOptions, reporter: Reporter, *, rotate: bool = False) -> Outcome:
    """Carry out the whole plan. Raises HeadfirstError on the first failure; run it again to go on.

    `rotate` makes new credentials first; a rotation that was interrupted goes on with the ones that it made.
    """
    options = replace(options, tags=checked_tags(options.tags))
    refuse_limit(options)
    prepared = prepare(options.inventories, options.extra_vars, probe=True, limit=options.limit)
    require_all(len(prepared.cluster.ranks))
    here = None
    if lab_of(prepared.cluster):
        _refuse_unfit(prepared.plan)
        here = _prepare_here(prepared.cluster, options, reporter)  # nodes must exist before they are locked
    if options.check:
        secrets = peek(prepared.cluster, options)
        return _carry_out(prepared, secrets, options, reporter, here)
    with claimed(prepared.cluster, options, "credentials --rotate" if rotate else "up", reporter) as claim:
        if rotate and not claim.secrets.is_rotating:
            claim = claim.change(claim.secrets.rotated())
        outcome = _carry_out(prepared, claim.secrets, options, reporter, here)
        if claim.secrets.is_rotating and _webui_ran(prepared.cluster, options, claim):
            claim.change(claim.secrets.applied())
    return outcome


def _webui_ran(cluster: Cluster, options: RunOptions, claim: Claim) -> bool:
    reached = cluster.webui.name in claim.held.states
    return reached and (not options.tags or "webui" in options.tags)


def _carry_out(
    prepared: Prepared, secrets: Secrets, options: RunOptions, reporter: Reporter, here: LocalWork | None
) -> Outcome:
    """The run itself, on hosts that are ours. `here` is this machine's part, where it is done already."""
    start = time.monotonic()
    before: list[StageTime] = []
    if hardware.comes_first(prepared.cluster):
        before = hardware.make_ready(options, prepared.cluster, prepared.plan, reporter).stages
        prepared = prepare(options.inventories, options.extra_vars, probe=True, limit=options.limit)
    cluster = prepared.cluster
    _refuse_unfit(prepared.plan)
    built, local = here or _prepare_here(cluster, options, reporter)
    files = artifacts.collect(cluster, built)
    hidden = [*secrets.values(), hub_token(prepared.plan.weights.source)]
    variables = role_vars(cluster, prepared.plan, secrets, files)
    result = run_stages("up.yml", options, cluster, variables, reporter, secrets=hidden)
    seconds = time.monotonic() - start + sum(stage.seconds for stage in (here[1] if here else []))
    result = replace(result, stages=[*before, *local, *result.stages], seconds=seconds)
    return Outcome(
        prepared.plan, result, credentials_file(cluster), Path(options.inventories[0]), options.check
    )


def _refuse_unfit(plan: Plan) -> None:
    if plan.fit.fits is False:
        raise InputError(plan.fit.reason, hint="`deploy plan` shows the memory of a GPU term by term.")


def _prepare_here(cluster: Cluster, options: RunOptions, reporter: Reporter) -> LocalWork:
    """Packages that are missing, then lab nodes and images side by side. Check mode starts no nodes."""
    jobs = dict(artifacts.jobs(cluster))
    lab = lab_of(cluster)
    if lab and options.check:
        lab_access(lab)  # says what to do when the nodes are not up
    elif lab:
        share_demo_checkpoint()
        jobs["lab"] = lambda advance: lab_up(lab, advance, advance.warn)
    if not jobs:
        return {}, []
    ask_for_root(reporter)
    times = []
    if missing := packages.missing(artifacts.packages(cluster)):
        title, install = f"Install {', '.join(missing)} on this machine", partial(packages.install, missing)
        times.append(run_jobs(reporter, "packages", title, {"apt-get": install}, unit="%")[1])
    built, seconds = run_jobs(reporter, "prepare", "Nodes and images on this machine", jobs)
    return built, [*times, seconds]
