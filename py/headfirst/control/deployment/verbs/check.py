"""`deploy check`: what prevents the deployment on the hosts. Changes nothing."""

from __future__ import annotations

from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.claim import peek
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.playbooks import run_stages
from headfirst.control.deployment.running.recorded import recorded
from headfirst.control.deployment.running.role_vars.hosts import check_vars
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import RunResult


def check(options: RunOptions, reporter: Reporter) -> RunResult:
    """Run the check stage alone. Raises NotReadyError for findings or an owner that stop a deployment."""
    prepared = prepare(options.inventories, options.extra_vars, probe=True, limit=options.limit)
    variables = check_vars(prepared.cluster, prepared.plan)
    with recorded(prepared.cluster, options, "check", reporter) as shown:
        result = run_stages("check.yml", options, prepared.cluster, variables, shown)
    peek(prepared.cluster)
    return result
