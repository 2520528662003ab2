"""Runs a playbook of ours on a prepared cluster."""

from __future__ import annotations

from collections.abc import Sequence

from headfirst.collection import collection_root
from headfirst.common.scrub import url_credentials
from headfirst.control.deployment.hosts.access import (
    host_access,
    login_secrets,
    refuse_missing_tools,
)
from headfirst.control.deployment.lab_nodes import lab_access, lab_of
from headfirst.control.deployment.running import inventory
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.role_vars import HostVars
from headfirst.control.run.failures import to_error
from headfirst.control.run.log import new_log_file
from headfirst.control.run.private_dir import private_folder
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import RunResult
from headfirst.control.run.runner import run_playbook
from headfirst.decide.cluster.types import Cluster


def run_stages(
    playbook: str,
    options: RunOptions,
    cluster: Cluster,
    variables: HostVars,
    reporter: Reporter,
    *,
    secrets: Sequence[str] = (),
    extra: Sequence[str] = (),
) -> RunResult:
    """Run `playbooks/<playbook>` with these variables per host. Raises HeadfirstError unless it ends well."""
    result = try_stages(playbook, options, cluster, variables, reporter, secrets=secrets, extra=extra)
    if not result.ok:
        raise to_error(result, host_access(cluster), cluster.inventories[0])
    return result


def try_stages(
    playbook: str,
    options: RunOptions,
    cluster: Cluster,
    variables: HostVars,
    reporter: Reporter,
    *,
    secrets: Sequence[str] = (),
    extra: Sequence[str] = (),
) -> RunResult:
    """As run_stages, and the caller judges how it ended."""
    refuse_missing_tools(cluster)
    lab = lab_of(cluster)
    with private_folder() as folder:
        planned = folder / "plan.yml"
        inventory.write(planned, cluster, variables, lab_access(lab) if lab else None)
        return run_playbook(
            collection_root() / "playbooks" / playbook,
            [*cluster.inventories, planned],
            reporter=reporter,
            log_file=new_log_file(cluster.name),
            extra_vars=[*options.extra_vars, *extra],
            limit=_limit(cluster),
            tags=",".join(options.tags) or None,
            check=options.check,
            diff=options.diff,
            verbosity=options.verbosity,
            hosts=len(cluster.hosts),
            secrets=[
                *secrets,
                *login_secrets(cluster),
                *cluster.url_credentials,
                *url_credentials(variables),
            ],
        )


def _limit(cluster: Cluster) -> str | None:
    return None if cluster.limit is None else ",".join(host.name for host in cluster.limited_hosts)
