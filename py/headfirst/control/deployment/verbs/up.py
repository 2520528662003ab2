"""`deploy up`: this machine's part first, then the playbook, then the summary."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from headfirst.common.errors import NotReadyError
from headfirst.control.credentials.secrets import Secrets, credentials_file
from headfirst.control.deployment import api_keys, lab_nodes
from headfirst.control.deployment.bundled import Closed, proven
from headfirst.control.deployment.certificate import Signed, keep_ca, keep_ca_key, with_certificate
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.running import artifacts
from headfirst.control.deployment.running.claim import ClaimedCluster, claimed, peek
from headfirst.control.deployment.running.local_work import JobAdvance, ask_for_root, run_jobs
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.phases import of_up
from headfirst.control.deployment.running.playbooks import run_phases, run_stages
from headfirst.control.deployment.running.recorded import keep_plan, recorded
from headfirst.control.deployment.running.restarts import announced
from headfirst.control.deployment.running.role_vars import with_sources
from headfirst.control.deployment.running.role_vars.hosts import hardware_vars
from headfirst.control.deployment.running.role_vars.outbound import outbound_vars
from headfirst.control.deployment.running.role_vars.weights import hub_tokens
from headfirst.control.deployment.running.stages import checked_tags, refuse_limit
from headfirst.control.deployment.verbs.up_stages import Stages, brought_by, refuse_unfit
from headfirst.control.live.measured import measured
from headfirst.control.machine import packages
from headfirst.control.ownership.lease import Lease
from headfirst.control.run.environment import require_all
from headfirst.control.run.events import FindingsReported
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import RunResult, StageTime
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.diagnose.measured import Measured
from headfirst.decide.plan.host import devices
from headfirst.decide.plan.types import Plan

LocalWork = tuple[dict[str, Any], list[StageTime]]


@dataclass(frozen=True)
class UpOutcome:
    """A successful run and its summary."""

    plan: Plan
    result: RunResult
    credentials: Path
    inventory: Path
    check: bool
    service: Service | None = None  # the only one that the run brought; None: all
    measured: Mapping[str, Measured] = field(default_factory=dict)  # by service, of what its start measured
    ca: Path | None = None  # what people trust, where an authority of the cluster signs the certificate


def up(options: RunOptions, reporter: Reporter, *, rotate: bool = False) -> UpOutcome:
    """Carry out the whole plan. Raises HeadfirstError on the first failure; run it again to go on.

    `rotate` makes new credentials first; a rotation that was interrupted goes on with the ones that it made.
    """
    options = replace(options, tags=checked_tags(options.tags))
    refuse_limit(options.limit, options.tags)
    prepared = _prepared(options)
    # Ranks of a replica wait for each other in one process each.
    require_all(
        max(len(replica.places) for service in prepared.cluster.services for replica in service.replicas)
    )
    verb = "credentials --rotate" if rotate else "up"
    brought = brought_by(prepared.plan, prepared.cluster.whole_service(options.service))
    with recorded(prepared.cluster, options, verb, reporter, brought) as shown:
        outcome = _up(prepared, options, shown, rotate=rotate)
        keep_plan(shown, outcome.plan, outcome.measured)
    return outcome


def _up(prepared: Prepared, options: RunOptions, reporter: Reporter, *, rotate: bool) -> UpOutcome:
    service, keys = prepared.cluster.whole_service(options.service), api_keys.read(prepared.cluster)

    def announce_keys(before: Secrets | None) -> None:
        for text in api_keys.changes(prepared.cluster, keys, before, service, options.tags):
            reporter.warn("api-key", "api-key", prepared.cluster.head.name, text)

    with_keys = partial(api_keys.applied, keys=keys, brought=service, tags=options.tags)
    bundle = proven(prepared.bundle, reporter, check=options.check) if prepared.bundle else None
    here = None
    if lab_nodes.lab_of(prepared.cluster):
        refuse_unfit(brought_by(prepared.plan, service))
        # Nodes must exist before they are locked.
        here = _prepare_here(prepared, options, reporter, builds=bundle is None)
    closed = Closed.of(bundle, prepared.cluster, prepared.plan) if bundle else None
    if options.check:
        present = peek(prepared.cluster)
        announce_keys(present)
        signed = _complete(prepared.cluster, with_keys(present or Secrets()), reporter, rotates=rotate)
        return _carry_out(prepared, signed.secrets, options, reporter, here, closed)
    with claimed(prepared.cluster, options, "credentials --rotate" if rotate else "up", reporter) as claim:
        announce_keys(claim.before)
        if rotate and not claim.secrets.is_rotating:
            claim = claim.change(claim.secrets.rotated())
        signed = _complete(prepared.cluster, with_keys(claim.secrets), reporter, rotates=rotate)
        if signed.ca_key:
            # Before its certificate is recorded: without the key nobody could renew that.
            keep_ca_key(prepared.cluster, signed.ca_key)
        if signed.secrets is not claim.secrets:
            claim = claim.change(signed.secrets)
        outcome = _carry_out(prepared, claim.secrets, options, reporter, here, closed, claim.lease)
        if claim.secrets.is_rotating and _webui_ran(prepared.cluster, options, claim):
            claim.change(claim.secrets.applied())
    return outcome


def _complete(cluster: Cluster, secrets: Secrets, reporter: Reporter, *, rotates: bool) -> Signed:
    """The secrets, with those that this cluster needs and has not yet."""
    secrets = secrets.with_keys([service.name for service in cluster.services])
    if cluster.monitoring and cluster.settings.grafana:
        secrets = secrets.with_grafana_password()
    signed = with_certificate(cluster, secrets, rotates=rotates)
    if signed.warning:
        reporter.warn("certificate", "certificate", cluster.webui.name, signed.warning)
    return signed


def _announce_restarts(prepared: Prepared, secrets: Secrets, options: RunOptions, reporter: Reporter) -> None:
    service = prepared.cluster.whole_service(options.service)
    for finding in announced(prepared, secrets, service, options.tags):
        reporter.handle(FindingsReported(finding.id, finding.host, (finding,)))


def _webui_ran(cluster: Cluster, options: RunOptions, claim: ClaimedCluster) -> bool:
    # With --service other services have the keys from before.
    reached = cluster.webui.name in claim.lease.states and options.service is None
    return reached and (not options.tags or "webui" in options.tags)


def _carry_out(
    prepared: Prepared,
    secrets: Secrets,
    options: RunOptions,
    reporter: Reporter,
    here: LocalWork | None,
    closed: Closed | None,
    lease: Lease | None = None,
) -> UpOutcome:
    """The run itself, on hosts that are ours and locked. `here` is this machine's part, where it is done."""
    start = time.monotonic()
    before: list[StageTime] = []
    sources = closed.variables(prepared.cluster) if closed else {}
    if not devices.comes_first(prepared.cluster):
        _announce_restarts(prepared, secrets, options, reporter)
    if closed:
        brought = run_stages("bundle.yml", options, prepared.cluster, sources, reporter)
        before = [closed.bundle.proving, *brought.stages]
    elif prepared.plan.outbound:
        logins = outbound_vars(prepared.cluster)
        before = [*run_stages("outbound.yml", options, prepared.cluster, logins, reporter).stages]
    peers = prepared.cluster.limited_hosts if options.service else None
    if devices.comes_first(prepared.cluster):  # only drivers report GPUs and RDMA devices
        variables = with_sources(hardware_vars(prepared.cluster, prepared.plan, peers), sources)
        before += run_stages("hardware.yml", options, prepared.cluster, variables, reporter).stages
        prepared = _prepared(options)
        _announce_restarts(prepared, secrets, options, reporter)
    cluster = prepared.cluster
    service = cluster.whole_service(options.service)
    brought_plan = brought_by(prepared.plan, service)
    refuse_unfit(brought_plan)
    built, local = here or _prepare_here(prepared, options, reporter, builds=closed is None)
    files = (
        closed.bundle.artifacts(prepared.plan) if closed else artifacts.collect(cluster, brought_plan, built)
    )
    hidden = [*secrets.values(), *hub_tokens(prepared.plan)]  # run_phases adds those of the inventory
    phases = partial(of_up, secrets=secrets, files=files, service=service)
    run = partial(run_phases, options=options, secrets=hidden, sources=sources, lease=lease)
    prepared, result, asked = Stages(service, options, reporter, phases, run).carried_out(prepared)
    seconds = time.monotonic() - start + sum(stage.seconds for stage in (here[1] if here else []))
    result = replace(result, stages=[*before, *local, *asked, *result.stages], seconds=seconds)
    return UpOutcome(
        plan=brought_by(prepared.plan, service),
        result=result,
        service=service,
        credentials=credentials_file(cluster),
        ca=None if options.check else keep_ca(cluster, secrets),
        inventory=Path(options.inventories[0]),
        check=options.check,
        measured={} if options.check else _measured(prepared.cluster, brought_by(prepared.plan, service)),
    )


def _measured(cluster: Cluster, plan: Plan) -> dict[str, Measured]:
    """What the start of the first replica of each service measured, where its log has something of it."""
    access, told = host_access(cluster), {}
    for service in plan.services:
        replica, engine = service.replicas[0], engines.get(service.engine, service.engine_version)
        head, expected = replica.nodes[0], service.sized(replica).fit.figures
        figures = measured(access[head.host], head.container.name, engine, expected)
        if figures.sentence:
            told[str(service)] = figures
    return told


def _prepared(options: RunOptions) -> Prepared:
    return prepare(
        options.inventories,
        options.extra_vars,
        probe=True,
        ports=True,
        limit=options.limit,
        service=options.service,
        engine_args=options.engine_args,
        bundle=options.bundle,
    )


def _prepare_here(prepared: Prepared, options: RunOptions, reporter: Reporter, *, builds: bool) -> LocalWork:
    """Packages that are missing, then lab nodes and images side by side. Check mode starts no nodes."""
    cluster = prepared.cluster
    service = cluster.whole_service(options.service)
    plan = brought_by(prepared.plan, service)
    made = artifacts.builds(cluster, plan) if builds else []
    jobs: dict[str, Callable[[JobAdvance], Any]] = {each.job: partial(each.archive, cluster) for each in made}
    if options.check:
        lab_nodes.lab_logins(cluster)  # reports what to do when the nodes are not up
    elif lab_nodes.lab_of(cluster):
        jobs["lab"] = partial(lab_nodes.started, cluster, (service,) if service else cluster.services)
    if not jobs:
        return {}, []
    ask_for_root(reporter)
    times = []
    if builds and (missing := packages.missing(artifacts.packages(cluster, plan))):
        if options.check:
            raise NotReadyError(
                f"this machine lacks {', '.join(missing)}, and --check installs nothing",
                hint="`deploy up` installs what is missing; or run: apt-get install " + " ".join(missing),
            )
        title, install = f"Install {', '.join(missing)} on this machine", partial(packages.install, missing)
        times.append(run_jobs(reporter, "packages", title, {"apt-get": install}, unit="%")[1])
    built, seconds = run_jobs(reporter, "prepare", "Nodes and images on this machine", jobs)
    return built, [*times, seconds]
