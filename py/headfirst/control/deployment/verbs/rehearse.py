"""`deploy rehearse`: the planned ranks with dummy weights on the real hosts, before the weights are there.

`deploy up` calls `rehearsals` while the weights are on their way.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import ACCEPTANCE_MODEL

from headfirst.common import container_names as names
from headfirst.common.checkpoint_files import MANIFEST
from headfirst.common.errors import HeadfirstError, StoppedError
from headfirst.control.checkpoints import small_files
from headfirst.control.credentials.identity import cluster_folder
from headfirst.control.credentials.secrets import hidden, random_api_key
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.model_files import model_files
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.running.claim import known_credentials, run_lock
from headfirst.control.deployment.running.local_work import JobAdvance, run_jobs
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.recorded import weights_digest
from headfirst.control.deployment.verbs.service import engine_of, readiness_of
from headfirst.control.rehearsal.result import Rehearsed, RehearsedReplica
from headfirst.control.rehearsal.run import Rehearsing, rehearse
from headfirst.control.run.amounts import duration
from headfirst.control.run.cancel import Canceller
from headfirst.control.run.events import Event as RunEvent
from headfirst.control.run.events import Finding, FindingsReported
from headfirst.control.run.history import read
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.time_left import was_brought
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.cluster.types import Service
from headfirst.decide.containers import blanks
from headfirst.decide.diagnose.subject import subject
from headfirst.decide.plan.types import PlannedReplica, PlannedService

STAGE = "rehearsal"
_TITLE = "Start the ranks with dummy weights"
_GOES_ON = "The weights go on coming, and `deploy up` joins them. With rehearse=auto a failure only warns."


# In the place of a service's model and of what belongs to this: settings of the layout and of hosts stay.
ACCEPTANCE = ServiceSettings.model_validate({"model_source": "demo"}).model_dump(
    include={
        *("model_source", "model_revision", "trust_remote_code", "task", "preset"),
        *("parsers", "adapters", "draft_model", "draft_model_revision"),
        *("engine_args", "prefill_engine_args", "decode_engine_args"),
    }
) | {"model": ACCEPTANCE_MODEL}


def run(options: RunOptions, reporter: Reporter, *, acceptance: bool = False) -> Rehearsed:
    """Rehearse all replicas, or those of `--service`. NotReadyError where none of them could be.

    `acceptance`: with the model that Headfirst has for it, in the place of the inventory's.
    """
    model = ACCEPTANCE if acceptance else None
    prepared = prepare(options.inventories, options.extra_vars, probe=True, ports=True, model=model)
    canceller = Canceller()
    with run_lock(prepared.cluster, options, "rehearse", reporter):
        jobs = {
            f"{job.service}/{job.replica.index}": partial(_rehearse, job, canceller)
            for job in rehearsals(prepared, options.service)
        }
        with canceller.on_signals():  # all of them start at the same time, as they will serve
            results = run_jobs(reporter, STAGE, _TITLE, jobs)[0] if jobs else {}
        if canceller.requested:
            raise StoppedError("the rehearsal was stopped before its end")
    replicas = [*results.values(), *_not_rehearsed(prepared, options.service)]
    good = all(replica.state != "failed" for replica in replicas)
    return Rehearsed(passed=good and any(result.state == "passed" for result in replicas), replicas=replicas)


def _not_rehearsed(prepared: Prepared, chosen: str | None) -> list[RehearsedReplica]:
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


def rehearsals(
    prepared: Prepared, chosen: str | None = None, *, only: Collection[str | None] | None = None
) -> list[Rehearsing]:
    """What each replica's rehearsal needs; `only` those of these services."""
    planned = [
        (service, replica)
        for service in prepared.plan.services
        for replica in service.rehearsal.replicas
        if (only is None or service.name in only)
        and prepared.cluster.matches(chosen, service.name, replica.index)
    ]
    beside: dict[str, list[str]] = {}
    for _, replica in planned:
        for node in replica.nodes:
            beside.setdefault(node.host, []).append(node.container.name)
    return [_rehearsing(prepared, service, replica, beside) for service, replica in planned]


def _rehearse(rehearsing: Rehearsing, canceller: Canceller, advance: JobAdvance) -> RehearsedReplica:
    ranks = len(rehearsing.replica.nodes)
    return rehearse(
        rehearsing,
        stop=lambda: canceller.requested,
        note=lambda text, done: advance(text, done, ranks),
    )


def in_up(prepared: Prepared, service: Service | None) -> list[Rehearsing]:
    """What `deploy up` rehearses while it brings weights; nothing where the hosts had these before."""
    wanted = {
        planned.name
        for planned in prepared.plan.services
        if planned.rehearsal.in_up and (service is None or service.name == planned.name)
    }
    before = was_brought(read(cluster_folder(prepared.cluster)), weights_digest(prepared.plan))
    return [] if before else rehearsals(prepared, only=wanted)


@contextmanager
def beside(planned: Sequence[Rehearsing], reporter: Reporter) -> Iterator[Reporter]:
    """The reporter of a run that brings weights: it shows what the rehearsals find, which end with the run.

    Of a strict one it raises a failure: the run ends, its jobs on the hosts go on.
    """
    shown = _Beside(planned, reporter)
    try:
        yield shown
    finally:
        shown.end()
    shown.tick()


class _Beside(Reporter):
    """Passes events on, and shows between them what the rehearsals found."""

    def __init__(self, planned: Sequence[Rehearsing], reporter: Reporter) -> None:
        self._reporter = reporter
        self._stop = Event()
        self._results: SimpleQueue[tuple[RehearsedReplica, bool]] = SimpleQueue()
        self._threads = [Thread(target=self._rehearse, args=(one,), daemon=True) for one in planned]
        for thread in self._threads:
            thread.start()

    def handle(self, event: RunEvent) -> None:
        self._reporter.handle(event)

    def tick(self) -> None:
        self._reporter.tick()
        while not self._results.empty():
            self._show(*self._results.get())

    def end(self) -> None:
        """Stop the rehearsals, and wait until their containers are gone."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _rehearse(self, planned: Rehearsing) -> None:
        try:
            result = rehearse(planned, stop=self._stop.is_set, note=lambda text, done: None)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            result = RehearsedReplica(
                service=planned.service, replica=planned.replica.index, state="not rehearsed", why=why
            )
        self._results.put((result, planned.strict))

    def _show(self, result: RehearsedReplica, strict: bool) -> None:
        if result.state == "stopped":
            return
        if result.state == "failed" and strict:
            hint = f"{result.fix}\n{_GOES_ON}"
            raise HeadfirstError(f"the rehearsal failed: {result.why}", where=result.host, hint=hint)
        severity = "warning" if result.state == "failed" else "note"
        finding = Finding(STAGE, severity, result.host or result.service, verdict(result), fix=result.fix)
        self._reporter.handle(FindingsReported(STAGE, finding.host, (finding,)))


def verdict(result: RehearsedReplica) -> str:
    """What a rehearsal has found, a sentence."""
    name = f"{result.service}/{result.replica}"
    if result.state == "passed":
        return f"{name} started with dummy weights on all hosts and answered, in {duration(result.seconds)}"
    what = "the rehearsal failed" if result.state == "failed" else "not rehearsed"
    return f"{name}: {what}: {result.why}"


def _rehearsing(
    prepared: Prepared, planned: PlannedService, replica: PlannedReplica, beside: Mapping[str, list[str]]
) -> Rehearsing:
    cluster = prepared.cluster
    service = cluster.service(planned.name)
    # Made for this rehearsal alone, and gone with it.
    key = random_api_key()
    keys = {blanks.api_key_blank(planned.name): key, blanks.ADMIN_KEY: random_api_key()}
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
        small_files=partial(model_files, cluster, planned),
        texts={names.engine_config(container): json.dumps(config)},
        secrets=[*keys.values(), *hidden(cluster, known_credentials(cluster))],
        beside=beside,
        seconds=planned.readiness.start_seconds,
        logs=cluster_folder(cluster) / "rehearsal",
        left_out=planned.rehearsal.left_out,
        strict=planned.rehearsal.strict,
    )
