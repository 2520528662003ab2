"""`deploy bench`: measures a running service through the load tool. Changes nothing on the hosts."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from headfirst import __version__
from headfirst.control.bench import picture, runner, slo
from headfirst.control.bench.load import Load, Shape
from headfirst.control.bench.requests import read_dataset
from headfirst.control.bench.result import BenchResult, BenchSubject, Point
from headfirst.control.bench.runner import BenchRun, BenchSettings
from headfirst.control.bench.slo import Promise
from headfirst.control.deployment.measuring.chat_service import chat_service
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.recorded import note_left, timed
from headfirst.control.deployment.verbs.service import open_api
from headfirst.control.evalscope import environment, process
from headfirst.control.paths import state_dir
from headfirst.control.smoke.api import Api
from headfirst.decide.cluster.types import Cluster

_ASK_TIMEOUT_S = 120.0
PICTURE = "throughput.svg"


class BenchWatcher(runner.LoadWatcher):
    """Follows a run of `deploy bench`; this one shows nothing."""

    def note(self, text: str) -> None:
        """Something that a person should read."""


@dataclass(frozen=True)
class Workload:
    """What to measure. `dataset` replaces the prompts of the shape; `promised`: find the highest load that
    keeps these; `number`, `seconds` and `warmup` as in runner.Settings."""

    shape: Shape
    loads: Sequence[Load]
    dataset: Path | None = None
    promised: Sequence[Promise] = ()
    number: int | None = None
    seconds: float | None = None
    warmup: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class BenchOutcome:
    """A result, where it was written, and what the search found (None: no promise was given)."""

    result: BenchResult
    folder: Path
    capacity: slo.Capacity | None


@dataclass(frozen=True)
class MeasuredService:
    """A service that is ready to be measured; `shape` fits into its context."""

    cluster: Cluster
    subject: BenchSubject
    run: BenchRun
    shape: Shape
    mark: str
    path_seconds: float
    dataset: str | None


def bench(
    options: RunOptions, workload: Workload, folder: Path | None, watcher: BenchWatcher
) -> BenchOutcome:
    """Measure what `options.service` names, and write what was found into `folder` or, without
    one, into a new folder of the state. NotReadyError: the service does not answer."""
    begun = datetime.now(UTC)
    with (
        opened(options, workload, watcher) as service,
        timed(service.cluster, options, "bench", workload_label(workload)) as recording,
    ):
        points: list[Point] = []

        def measure(load: Load) -> Point:
            note_left(recording.begin(str(load)).left_seconds, watcher.note)
            measured = service.run.measure(load)
            recording.end(str(load))
            points.append(measured)
            return measured

        capacity = None
        if promised := workload.promised:
            capacity = slo.search(workload.loads, lambda load: not slo.broken(measure(load), promised))
        else:
            for load in workload.loads:
                measure(load)
    result = result_of(service, workload, points, begun)
    where = folder or new_folder("bench", result.subject.names, begun)
    where.mkdir(parents=True, exist_ok=True)
    result.write(where)
    draw(where, [result])
    return BenchOutcome(result, where, capacity)


def workload_label(workload: Workload) -> str:
    """What the time of a measurement depends on."""
    amount = f"{workload.seconds:g} s" if workload.seconds else f"{workload.number or 'usual'} requests"
    loads = ",".join(map(str, workload.loads))
    name = workload.dataset.name if workload.dataset else workload.shape.name
    return f"{name} {loads} {amount} warmup {workload.warmup}{' slo' if workload.promised else ''}"


def draw(folder: Path, results: Sequence[BenchResult]) -> None:
    """Write the picture of several runs, beside their results."""
    lines = [
        (f"{run.subject.engine} {run.subject.engine_version}, {run.date[:16]}", run.points) for run in results
    ]
    newest = results[-1]
    text = picture.svg(f"{newest.subject.model}: {newest.shape.name}", lines)
    (folder / PICTURE).write_text(text, encoding="utf-8")


def result_of(
    service: MeasuredService, workload: Workload, points: Sequence[Point], begun: datetime
) -> BenchResult:
    """The points, with everything that they depend on."""
    return BenchResult(
        headfirst=__version__,
        tool=environment.version(),
        date=begun.isoformat(timespec="seconds"),
        subject=service.subject,
        shape=service.shape,
        dataset=service.dataset,
        seed=workload.seed,
        mark=service.mark,
        path_seconds=service.path_seconds,
        points=sorted(points, key=lambda point: point.load.value),
    )


@contextmanager
def opened(options: RunOptions, workload: Workload, watcher: BenchWatcher) -> Iterator[MeasuredService]:
    """The service through a tunnel, and the load tool beside it."""
    dataset = read_dataset(workload.dataset) if workload.dataset else None
    service = chat_service(options, watcher.note, "`deploy bench` measures chats.")
    cluster, target = service.cluster, service.target
    mark = f"Run {secrets.token_hex(3)}."
    log = state_dir("logs") / f"{cluster.name}-bench-{mark[4:-1]}.log"
    with (
        open_api(cluster, options.service, timed=True) as (url, key),
        Api(url, key, target, _ASK_TIMEOUT_S) as api,
    ):
        api.require_ready(service.readiness)
        seen = runner.examine(api, mark)
        shape = workload.shape.within(seen.context)
        if shape != workload.shape:
            watcher.note(
                f"The context has {seen.context} tokens: prompts have {shape.prompt}, answers {shape.answer} "
                f"in place of {workload.shape.prompt} and {workload.shape.answer}."
            )
        settings = BenchSettings(
            shape, workload.seed, mark, dataset, workload.number, workload.seconds, workload.warmup
        )
        with process.running(service.python, "load", url, key, log) as running:
            run = BenchRun(running, target.model, settings, seen.scale, watcher)
            name = None
            if file := workload.dataset:
                name = f"{file.name} sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
            yield MeasuredService(cluster, service.subject, run, shape, mark, seen.path_seconds, name)
    log.unlink(missing_ok=True)  # after a failure it stays


def new_folder(kind: str, names: tuple[str, str], begun: datetime) -> Path:
    """A folder of the state for a run of `kind`; `names` are those of the subject."""
    group, run = names
    return state_dir(kind, group, re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{begun:%Y%m%d-%H%M%S}-{run}"))
