"""Runs playbooks of ours on a prepared cluster: one, or the phases of a verb in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headfirst.collection import collection_root
from headfirst.common.errors import InputError
from headfirst.control.deployment.hosts.access import host_access, login_secrets, refuse_missing_tools
from headfirst.control.deployment.lab_nodes import lab_logins
from headfirst.control.deployment.running import inventory
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.phases import Phase
from headfirst.control.deployment.running.role_vars import HostVars, with_sources
from headfirst.control.deployment.running.stages import tags_of
from headfirst.control.ownership.lease import Lease
from headfirst.control.run.failures import to_error
from headfirst.control.run.private_dir import private_folder
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import RunResult, joined
from headfirst.control.run.runner import new_log_file, run_playbook
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.scrub import url_credentials


def run_stages(
    playbook: str,
    options: RunOptions,
    cluster: Cluster,
    variables: HostVars,
    reporter: Reporter,
    *,
    secrets: Sequence[str] = (),
    may_fail: bool = False,
) -> RunResult:
    """Run `playbooks/<playbook>` with these variables per host.

    Raises HeadfirstError unless it ends well; with `may_fail` the caller judges how it ended.
    """
    refuse_missing_tools(cluster)
    with private_folder() as folder:
        planned = folder / "plan.yml"
        inventory.write(planned, cluster, variables, lab_logins(cluster))
        limit = None if cluster.limit is None else ",".join(host.name for host in cluster.limited_hosts)
        result = run_playbook(
            collection_root() / "playbooks" / playbook,
            [*cluster.inventories, planned],
            reporter=reporter,
            log_file=new_log_file(cluster.name),
            extra_vars=options.extra_vars,
            limit=limit,
            tags=",".join(options.tags) or None,
            check=options.check,
            diff=options.diff,
            verbosity=options.verbosity,
            hosts=len(cluster.hosts),
            secrets=[*secrets, *login_secrets(cluster), *cluster.hidden, *url_credentials(variables)],
        )
    if not (result.ok or may_fail):
        raise to_error(result, host_access(cluster), cluster.inventories[0])
    return result


def run_phases(
    phases: Sequence[Phase],
    options: RunOptions,
    cluster: Cluster,
    reporter: Reporter,
    *,
    secrets: Sequence[str] = (),
    sources: HostVars | None = None,
    lease: Lease | None = None,
) -> RunResult:
    """Run one after the other, on the hosts that --limit leaves. Raises HeadfirstError where one fails.

    `sources` are variables by host from where roles take what they install. `lease` is the run's lock:
    no phase begins after it is lost.
    """
    results = []
    for phase, limited in _limited(phases, options, cluster):
        if lease is not None:
            lease.confirm()
        variables = with_sources(phase.variables, sources or {})
        results.append(run_stages(phase.playbook, options, limited, variables, reporter, secrets=secrets))
    if not results:
        raise InputError(
            "no stage of -t acts on a host of --limit and --service",
            where=str(cluster.inventories[0]),
            hint="`deploy plan` shows which host runs what.",
        )
    return joined(results)


def _limited(
    phases: Sequence[Phase], options: RunOptions, cluster: Cluster
) -> Iterator[tuple[Phase, Cluster]]:
    """The phases that --tags and --limit leave, each with the cluster limited to its hosts."""
    if len(phases) == 1:
        yield phases[0], cluster
        return
    limited_names = {host.name for host in cluster.limited_hosts}
    for phase in phases:
        tags = tags_of(phase.playbook)
        hosts = [name for name in phase.variables if name in limited_names]
        if hosts and (not options.tags or set(options.tags) & tags):
            yield phase, cluster.limited(hosts)
