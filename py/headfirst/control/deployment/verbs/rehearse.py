"""`deploy rehearse`: the planned ranks with dummy weights on the real hosts, before the weights are there.

`deploy up` calls `rehearsals` while the weights are on their way.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from threading import Lock

from headfirst.common import container_names as names
from headfirst.common.checkpoint_files import MANIFEST
from headfirst.common.errors import StoppedError
from headfirst.control.checkpoints import small_files
from headfirst.control.checkpoints.small_files import Files
from headfirst.control.credentials.secrets import hidden
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.model_files import model_files
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.running.claim import known_credentials, run_lock
from headfirst.control.deployment.running.local_work import JobAdvance, run_jobs
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs.service import engine_of, readiness_of
from headfirst.control.rehearsal.result import Rehearsed, RehearsedReplica
from headfirst.control.rehearsal.run import Rehearsing, rehearse
from headfirst.control.run.cancel import Canceller
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.containers import blanks
from headfirst.decide.diagnose.subject import subject
from headfirst.decide.plan.types import PlannedReplica, PlannedService

STAGE = "rehearsal"
_TITLE = "Start the ranks with dummy weights"


def run(options: RunOptions, reporter: Reporter) -> Rehearsed:
    """Rehearse all replicas, or those of `--service`. NotReadyError where none of them could be."""
    prepared = prepare(options.inventories, options.extra_vars, probe=True, ports=True)
    with run_lock(prepared.cluster, options, "rehearse", reporter):
        return rehearsed(prepared, reporter, options.service)


def rehearsed(prepared: Prepared, reporter: Reporter, chosen: str | None = None) -> Rehearsed:
    """Rehearse replicas on hosts that are locked; all of them start at the same time, as they will serve."""
    canceller = Canceller()
    jobs = {
        f"{job.service}/{job.replica.index}": _job(job, lambda: canceller.requested)
        for job in rehearsals(prepared, chosen)
    }
    with canceller.on_signals():
        results = run_jobs(reporter, STAGE, _TITLE, jobs)[0] if jobs else {}
    if canceller.requested:
        raise StoppedError("the rehearsal was stopped before its end")
    replicas = [*results.values(), *not_rehearsed(prepared, chosen)]
    good = all(replica.state != "failed" for replica in replicas)
    return Rehearsed(passed=good and any(result.state == "passed" for result in replicas), replicas=replicas)


def not_rehearsed(prepared: Prepared, chosen: str | None = None) -> list[RehearsedReplica]:
    """The replicas that the plan does not rehearse, each with the reason."""
    return [
        RehearsedReplica(
            service=service.served_model_name,
            replica=replica.index,
            state="not rehearsed",
            why=service.rehearsal.not_rehearsed,
        )
        for service in prepared.plan.services
        for replica in service.replicas
        if service.rehearsal.not_rehearsed and prepared.cluster.matches(chosen, service.name, replica.index)
    ]


def rehearsals(prepared: Prepared, chosen: str | None = None) -> list[Rehearsing]:
    """What each replica's rehearsal needs."""
    planned = [
        (service, replica)
        for service in prepared.plan.services
        for replica in service.rehearsal.replicas
        if prepared.cluster.matches(chosen, service.name, replica.index)
    ]
    beside: dict[str, list[str]] = {}
    for _, replica in planned:
        for node in replica.nodes:
            beside.setdefault(node.host, []).append(node.container.name)
    return [_rehearsing(prepared, service, replica, beside) for service, replica in planned]


def _job(rehearsing: Rehearsing, stop: Callable[[], bool]) -> Callable[[JobAdvance], RehearsedReplica]:
    def job(advance: JobAdvance) -> RehearsedReplica:
        ranks = len(rehearsing.replica.nodes)
        return rehearse(rehearsing, stop=stop, note=lambda text, done: advance(text, done, ranks))

    return job


def _rehearsing(
    prepared: Prepared, planned: PlannedService, replica: PlannedReplica, beside: Mapping[str, list[str]]
) -> Rehearsing:
    cluster = prepared.cluster
    service = cluster.service(planned.name)
    # Made for this rehearsal alone, and gone with it.
    key = _key()
    keys = {blanks.api_key_blank(planned.name): key, blanks.ADMIN_KEY: _key()}
    config = {name: json.loads(blanks.filled(text, keys)) for name, text in planned.config_file.items()}
    container = replica.nodes[0].container.name
    in_place = planned.weights.placement == "in_place"
    return Rehearsing(
        service=planned.served_model_name,
        replica=replica,
        readiness=planned.readiness,
        access=host_access(cluster),
        subject=subject(engine_of(service), readiness_of(service), names.REHEARSAL, key),
        folders=planned.model_folders,
        complete=[small_files.CONFIG if in_place else MANIFEST],
        small_files=_Reader(cluster, planned),
        texts={names.engine_config(container): json.dumps(config)},
        secrets=[*keys.values(), *hidden(cluster, known_credentials(cluster))],
        beside=beside,
        seconds=planned.readiness.start_seconds,
        left_out=planned.rehearsal.left_out,
    )


def _key() -> str:
    return "sk-" + secrets.token_urlsafe(32)


class _Reader:
    """Reads the small files of a service's model once, where a host asks for them."""

    def __init__(self, cluster: Cluster, planned: PlannedService) -> None:
        self._cluster, self._planned = cluster, planned
        self._lock = Lock()
        self._files: Files | None = None

    def __call__(self) -> Files:
        with self._lock:
            self._files = self._files or model_files(self._cluster, self._planned)
            return self._files
