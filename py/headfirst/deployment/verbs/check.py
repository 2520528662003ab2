"""`deploy check`: what prevents the deployment on the hosts. Changes nothing."""

from __future__ import annotations

from headfirst.deployment.prepare import prepare
from headfirst.deployment.running.claim import peek
from headfirst.deployment.running.options import RunOptions
from headfirst.deployment.running.recorded import recorded
from headfirst.deployment.running.role_vars.hosts import check_vars
from headfirst.deployment.running.stages import run_stages
from headfirst.run.reporters.reporter import Reporter
from headfirst.run.result import RunResult


def check(options: RunOptions, reporter: Reporter) -> RunResult:
    """Run the check stage alone. Raises NotReadyError for findings or an owner that stop a deployment."""
    prepared = prepare(options.inventories, options.extra_vars, probe=True, limit=options.limit)
    variables = check_vars(prepared.cluster, prepared.plan)
    with recorded(prepared.cluster, options, "check", reporter) as shown:
        result = run_stages("check.yml", options, prepared.cluster, variables, shown)
    peek(prepared.cluster, options)
    return result
