"""`deploy up`: this machine's part first, then the playbook, then what a person needs to know."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from headfirst.cluster.secrets import credentials_file, load_or_create
from headfirst.cluster.types import Cluster
from headfirst.deployment import artifacts, hardware
from headfirst.deployment.hub_access import hub_token
from headfirst.deployment.lab_nodes import lab_access, lab_of, share_demo_checkpoint
from headfirst.deployment.limit import refuse_limit
from headfirst.deployment.local_work import ask_for_root, run_jobs
from headfirst.deployment.options import RunOptions
from headfirst.deployment.prepare import prepare
from headfirst.deployment.role_vars import role_vars
from headfirst.deployment.stages import run_stages
from headfirst.deployment.tags import checked_tags
from headfirst.errors import InputError
from headfirst.lab import packages
from headfirst.lab import up as lab_up
from headfirst.plan.types import Plan
from headfirst.run.reporter import Reporter
from headfirst.run.result import RunResult, StageTime


@dataclass(frozen=True)
class Outcome:
    """A run that ended well, and what to tell about it."""

    plan: Plan
    result: RunResult
    credentials: Path
    inventory: Path
    check: bool


def up(options: RunOptions, reporter: Reporter) -> Outcome:
    """Carry out the whole plan. Raises HeadfirstError on the first failure; run it again to go on."""
    options = replace(options, tags=checked_tags(options.tags))
    refuse_limit(options)
    start = time.monotonic()
    prepared = prepare(options.inventories, options.extra_vars, probe=True)
    before: list[StageTime] = []
    if hardware.comes_first(prepared.cluster):
        before = hardware.make_ready(options, prepared.cluster, prepared.plan, reporter).stages
        prepared = prepare(options.inventories, options.extra_vars, probe=True)
    cluster = prepared.cluster
    if prepared.plan.fit.fits is False:
        raise InputError(
            prepared.plan.fit.reason, hint="`deploy plan` shows the memory of a GPU term by term."
        )
    secrets = load_or_create(cluster.name)
    built, local = _prepare_here(cluster, options, reporter)
    files = artifacts.collect(cluster, built)
    hidden = [*secrets.values(), hub_token(prepared.plan.weights.source)]
    variables = role_vars(cluster, prepared.plan, secrets, files)
    result = run_stages("up.yml", options, cluster, variables, reporter, secrets=hidden)
    result = replace(result, stages=[*before, *local, *result.stages], seconds=time.monotonic() - start)
    return Outcome(
        prepared.plan, result, credentials_file(cluster.name), Path(options.inventories[0]), options.check
    )


def _prepare_here(
    cluster: Cluster, options: RunOptions, reporter: Reporter
) -> tuple[dict[str, Any], list[StageTime]]:
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
