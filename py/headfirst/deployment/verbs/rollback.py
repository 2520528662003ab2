"""`deploy rollback`: the ranks run the version that served before the present one."""

from __future__ import annotations

from headfirst.cluster.inventory import load
from headfirst.deployment.running.claim import run_lock
from headfirst.deployment.running.options import RunOptions
from headfirst.deployment.running.phases import Phase, run_phases
from headfirst.deployment.running.recorded import recorded
from headfirst.deployment.running.role_vars.engine import rollback_vars
from headfirst.errors import InputError
from headfirst.run.forks import require_all
from headfirst.run.reporters.reporter import Reporter
from headfirst.run.result import RunResult


def rollback(options: RunOptions, reporter: Reporter) -> RunResult:
    """Stop the ranks and start their previous version. InputError where no host has a complete one."""
    cluster = load(options.inventories, options.extra_vars)
    phases = [
        Phase("rollback.yml", rollback_vars(service, replica), f"{service}, replica {replica.index}")
        for service, replica in cluster.chosen(options.service)
    ]
    require_all(max(len(phase.variables) for phase in phases))
    with (
        recorded(cluster, options, "rollback", reporter) as shown,
        run_lock(cluster, options, "rollback", shown) as held,
    ):
        result = run_phases(phases, options, cluster, shown, held=held)
    if not result.stats.get("rollback"):
        raise InputError(
            "there is no version to return to: no other one has served on these hosts",
            where=str(options.inventories[0]),
            hint="Change the inventory and run: deploy up " + str(options.inventories[0]),
        )
    return result
