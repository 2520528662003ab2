"""`deploy check`: what prevents the deployment on the hosts. Changes nothing."""

from __future__ import annotations

from headfirst.deployment.claim import peek
from headfirst.deployment.options import RunOptions
from headfirst.deployment.prepare import prepare
from headfirst.deployment.recorded import recorded
from headfirst.deployment.role_vars.hosts import check_vars
from headfirst.deployment.stages import run_stages
from headfirst.run.reporter import Reporter
from headfirst.run.result import RunResult


def check(options: RunOptions, reporter: Reporter) -> RunResult:
    """Run the check stage alone. Raises NotReadyError for findings or an owner that stop a deployment."""
    prepared = prepare(options.inventories, options.extra_vars, probe=True, limit=options.limit)
    variables = check_vars(prepared.cluster, prepared.plan)
    with recorded(prepared.cluster, options, "check", reporter) as shown:
        result = run_stages("check.yml", options, prepared.cluster, variables, shown)
    peek(prepared.cluster, options)
    return result
