"""The history of a cluster: runs are recorded in its folder, and estimated from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from headfirst.control.credentials.identity import cluster_folder
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.live.status_types import ClusterStatus, ContainerStatus
from headfirst.control.run.amounts import duration
from headfirst.control.run.history import ImageRecord, Images, Kind, read, set_images
from headfirst.control.run.reporters.recording import Recording, RecordingReporter
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.time_left import TimeLeft, is_planned_already, left_with, was_brought
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.diagnose.measured import Measured
from headfirst.decide.plan.types import Plan

# Verbs whose work depends on what the cluster was left with.
_BY_STATE = ("up", "down", "down --data", "replace", "remove")


@contextmanager
def recorded(
    cluster: Cluster, options: RunOptions, verb: str, reporter: Reporter, plan: Plan | None = None
) -> Iterator[Reporter]:
    """The reporter to use in a run. A run inside another one (`up` in `replace`) is part of that one; what a
    run in check mode takes is not recorded."""
    if isinstance(reporter, RecordingReporter) or options.check:
        yield reporter
        return
    recording = Recording(cluster_folder(cluster), _time_left(cluster, options, verb, plan))
    with _saved(recording, reporter):
        yield RecordingReporter(reporter, recording)


@contextmanager
def timed(cluster: Cluster, options: RunOptions, verb: str, workload: str) -> Iterator[Recording]:
    """As `recorded`, for a verb that has no events; `workload`: what the length of its stages depends on."""
    kind = Kind(verb=verb, asked=f"{workload} {_scope(cluster, options)}".strip(), hosts=len(cluster.hosts))
    recording = Recording(cluster_folder(cluster), TimeLeft(read(cluster_folder(cluster)), kind))
    with _saved(recording, None):
        yield recording


def note_left(seconds_left: float | None, note: Callable[[str], None]) -> None:
    """Note the time left of a run that has no events, where it is known."""
    if seconds_left is not None:
        note(f"By earlier runs about {duration(seconds_left)} left.")


def keep_plan(reporter: Reporter, plan: Plan, measured: Mapping[str, Measured]) -> None:
    """The run has brought the cluster to this plan; `measured` has what starts measured, by service."""
    if isinstance(reporter, RecordingReporter):
        reporter.recording.measured = dict(measured)
        reporter.recording.containers = containers_digest(plan)
        reporter.recording.capabilities = {str(service): service.capabilities for service in plan.services}


def keep_images(cluster: Cluster, status: ClusterStatus) -> None:
    """The images that the containers run."""
    containers: list[tuple[str, ContainerStatus]] = [
        (f"{replica.service}/{replica.index}", rank) for replica in status.replicas for rank in replica.ranks
    ]
    containers += [(f"router of {router.service}", router) for router in status.routers]
    containers += [("chat page", status.webui)] if status.webui else []
    images = [
        ImageRecord(container=name, host=container.host, image=container.image, image_id=container.image_id)
        for name, container in containers
        if container.image and container.image_id
    ]
    if not images:
        return
    with suppress(OSError):  # what runs is shown on a full disk too
        set_images(
            cluster_folder(cluster), Images(at=datetime.now(UTC).isoformat(timespec="seconds"), images=images)
        )


def containers_digest(plan: Plan) -> str:
    """What the containers of a plan are, without rates and estimates, which differ from day to day."""
    return _digest([container.model_dump(mode="json") for container in plan.containers])


def weights_digest(plan: Plan) -> str:
    """What is brought to which hosts."""
    parts = []
    for service in plan.services:
        weights = service.weights
        hosts = [node.host for _, node in service.ranks]
        shown = weights.model_dump(include={"model", "source", "revision", "directory", "served_bytes"})
        companions = [[companion.id, companion.revision] for companion in service.companions]
        parts.append([shown, companions, sorted({*hosts, *plan.spares})])
    return _digest(parts)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _time_left(cluster: Cluster, options: RunOptions, verb: str, plan: Plan | None) -> TimeLeft:
    history = read(cluster_folder(cluster))
    weights = weights_digest(plan) if plan else ""
    kind = Kind(
        verb=verb,
        asked=_scope(cluster, options),
        hosts=len(cluster.limited_hosts),
        after=left_with(history) if verb in _BY_STATE else "",
        brings=bool(plan) and not was_brought(history, weights),
    )
    changes = not is_planned_already(history, containers_digest(plan)) if plan and verb == "up" else None
    return TimeLeft(history, kind, changes, weights, _weights_seconds(plan))


def _weights_seconds(plan: Plan | None) -> list[float | None]:
    """The plan's time of each stage `weights`: the services, then what each fetches beside its model."""
    services = plan.services if plan else []
    companions = [companion.seconds for service in services for companion in service.companions]
    return [*(service.weights.time.seconds for service in services), *companions]


def _scope(cluster: Cluster, options: RunOptions) -> str:
    words: Sequence[tuple[str, object]] = (
        (f"-t {','.join(options.tags)}", options.tags),
        ("-l", cluster.limit),
        (f"--service {options.service}", options.service),
    )
    return " ".join(word for word, value in words if value)


@contextmanager
def _saved(recording: Recording, reporter: Reporter | None) -> Iterator[None]:
    """The run is saved when this closes. A full disk does not make a run fail."""
    completed = False
    try:
        yield
        completed = True
    finally:
        try:
            recording.save(completed=completed)
        except OSError as error:
            if reporter is not None:
                what = f"the times of this run were not recorded: {error.strerror}"
                reporter.warn("history", "history", "controller", what)
