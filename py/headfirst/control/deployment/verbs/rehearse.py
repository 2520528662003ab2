"""`deploy rehearse`: the planned ranks with dummy weights on the real hosts, before the weights are there.

`deploy up` calls `rehearsals` while the weights are on their way.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock

from headfirst.common import container_names as names
from headfirst.common.errors import NotReadyError, StoppedError
from headfirst.control import demo
from headfirst.control.checkpoints import small_files
from headfirst.control.credentials.secrets import hidden
from headfirst.control.deployment.checkpoints import folder_here
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.running.claim import known_credentials, run_lock
from headfirst.control.deployment.running.local_work import JobAdvance, run_jobs
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs.service import engine_of, readiness_of
from headfirst.control.rehearsal.result import Rehearsed, RehearsedReplica
from headfirst.control.rehearsal.run import Files, Rehearsing, rehearse
from headfirst.control.run.cancel import Canceller
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.decide.cluster.types import Service
from headfirst.decide.containers import blanks
from headfirst.decide.diagnose.subject import subject
from headfirst.decide.plan import trust
from headfirst.decide.plan.types import Companion, PlannedReplica, PlannedService

STAGE = "rehearsal"
_TITLE = "Start the ranks with dummy weights"
_MANIFEST = "headfirst-manifest.json"  # written last into a folder of weights


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
        complete=[small_files.CONFIG if in_place else _MANIFEST],
        small_files=_Reader(prepared, service, planned),
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

    def __init__(self, prepared: Prepared, service: Service, planned: PlannedService) -> None:
        self._prepared, self._service, self._planned = prepared, service, planned
        self._lock = Lock()
        self._files: Files | None = None

    def __call__(self) -> Files:
        with self._lock:
            self._files = self._files or self._read()
            return self._files

    def _read(self) -> Files:
        planned, draft = self._planned, self._planned.draft_model
        model = self._model()
        if planned.convert_to_bf16:
            model = small_files.converted(model)
        files = {planned.weights.directory: model}
        return {**files, draft.directory: self._companion(draft)} if draft else files

    def _model(self) -> dict[str, bytes]:
        settings, service = self._service.settings, self._service
        if settings.model_source == "demo":
            with demo.checkpoint(service.model_id) as folder:
                return small_files.of_folder(folder)
        if settings.model_source == "path":
            return self._folder(settings.model)
        return small_files.of_hub(settings.model_source, service.model_id, trust.revision(settings))

    def _companion(self, companion: Companion) -> dict[str, bytes]:
        if companion.from_hub:
            return small_files.of_hub(companion.source, companion.id, companion.revision)
        return self._folder(companion.id)

    def _folder(self, folder: str) -> dict[str, bytes]:
        here = folder_here(self._prepared.cluster, Path(folder))
        if here is None:
            raise NotReadyError(
                f"the model is in {folder} on the head, and not on this machine",
                hint="Bring it to the hosts first: deploy up INVENTORY -t weights",
            )
        return small_files.of_folder(here)
