"""Runs are recorded, and give the time that the next one takes."""

from __future__ import annotations

import io
import json
import random
import stat
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from collecting import Collector
from headfirst.common.errors import NotReadyError
from headfirst.control.credentials.identity import cluster_folder
from headfirst.control.credentials.secrets import load_or_create
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.recorded import keep_plan, recorded, timed
from headfirst.control.deployment.verbs import check as checking
from headfirst.control.deployment.verbs import down as stopping
from headfirst.control.deployment.verbs import membership
from headfirst.control.deployment.verbs import rollback as rolling
from headfirst.control.deployment.verbs import up as bringing
from headfirst.control.deployment.verbs import webui_backups as backups
from headfirst.control.deployment.verbs.down import DownTarget
from headfirst.control.deployment.verbs.rollback import Version
from headfirst.control.deployment.verbs.up import UpOutcome
from headfirst.control.inventory.inventory import load
from headfirst.control.run import history
from headfirst.control.run.events import Finding, FindingsReported, StageDone, StageStarted
from headfirst.control.run.history import KEEP, KEEP_RESULTS, Kind, RunRecord, StageRun
from headfirst.control.run.reporters.json_events import JsonReporter
from headfirst.control.run.reporters.live import LiveReporter
from headfirst.control.run.reporters.plain import PlainReporter
from headfirst.control.run.reporters.recording import Recording, RecordingReporter
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import RunResult
from headfirst.control.run.time_left import TimeLeft
from headfirst.decide.plan.types import Plan
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
A100 = ROOT / "inventories" / "a100x4.ini"
# Seconds of the stages of `up`: first install, a change of the engine's arguments, nothing to do.
FIRST = {"check": 4, "docker": 60, "image": 240, "weights": 900, "engine": 300, "webui": 45}
CHANGE = {"check": 4, "docker": 3, "image": 2, "weights": 8, "engine": 260, "webui": 4}
SAME = {"check": 4, "docker": 3, "image": 2, "weights": 8, "engine": 6, "webui": 4}
KIND = Kind(verb="up", hosts=4, after="up")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def prepared() -> Prepared:
    return prepare([A100], [], probe=False)


def play(
    folder: Path, seconds: dict[str, float], changed: Sequence[str], time_left: TimeLeft, *, gap: float = 2.0
) -> list[tuple[str, float, StageStarted]]:
    """A run with these times; each stage with the seconds that were left when it began."""
    clock, shown, begun = Clock(), Collector(), []
    reporter = RecordingReporter(shown, Recording(folder, time_left, clock))
    for stage, length in seconds.items():
        clock.now += gap
        reporter.handle(StageStarted(stage, "Title"))
        begun.append((stage, clock.now))
        clock.now += length
        reporter.handle(StageDone(stage, length, int(stage in changed), ()))
    reporter.recording.save(completed=True)
    started = [event for event in shown.events if isinstance(event, StageStarted)]
    return [(stage, clock.now - at, event) for (stage, at), event in zip(begun, started, strict=True)]


def shaken(seconds: dict[str, float], dice: random.Random) -> dict[str, float]:
    """The same with up to 12 % more or less, as machines do."""
    return {stage: length * dice.uniform(0.88, 1.12) for stage, length in seconds.items()}


def left(folder: Path, **more: object) -> TimeLeft:
    return TimeLeft(history.read(folder), KIND, **more)  # type: ignore[arg-type]


def test_estimates_of_runs_like_the_recorded_ones_are_within_30_percent(tmp_path: Path) -> None:
    dice = random.Random(7)
    # In between: what the two kinds have in common must not blur them.
    for _ in range(6):
        play(tmp_path, shaken(CHANGE, dice), ["engine"], left(tmp_path, changes=True))
        play(tmp_path, shaken(SAME, dice), [], left(tmp_path, changes=False))
    for kind, changed in ((CHANGE, ["engine"]), (SAME, [])):
        for _ in range(20):
            run = play(tmp_path, shaken(kind, dice), changed, left(tmp_path, changes=bool(changed)))
            for stage, really, event in run:
                assert event.left_seconds == pytest.approx(really, rel=0.3), (stage, changed)
                assert event.expected_seconds == pytest.approx(kind[stage], rel=0.3)


def test_a_change_that_nobody_expected_corrects_the_estimate(tmp_path: Path) -> None:
    play(tmp_path, CHANGE, ["docker", "engine"], left(tmp_path, changes=True))
    play(tmp_path, SAME, [], left(tmp_path, changes=False))
    run = play(tmp_path, CHANGE, ["docker", "engine"], left(tmp_path, changes=False))
    begun = {stage: (event.left_seconds, really) for stage, really, event in run}
    assert begun["docker"][0] == pytest.approx(sum(SAME.values()) - 4 + 8)
    assert begun["image"][0] == pytest.approx(begun["image"][1])


def test_nothing_is_shown_where_nothing_alike_was_recorded(tmp_path: Path) -> None:
    empty = play(tmp_path, FIRST, list(FIRST), TimeLeft(history.RunHistory(), KIND))
    assert {(event.expected_seconds, event.left_seconds) for _, _, event in empty} == {(None, None)}
    for change in ({"verb": "rollback"}, {"hosts": 3}, {"after": "down"}, {"asked": "-t host"}):
        other = TimeLeft(history.read(tmp_path), KIND.model_copy(update=change))
        assert other.begin("check") == (None, None), change
    assert left(tmp_path, changes=False).begin("check") == (None, None)
    assert left(tmp_path, changes=True).begin("nothing like it") == (None, None)
    failed = history.read(tmp_path).runs[0].model_copy(update={"completed": False})
    assert TimeLeft(history.RunHistory(runs=[failed]), KIND).begin("check") == (None, None)


def test_the_time_of_the_plan_counts_where_the_weights_are_new(tmp_path: Path) -> None:
    play(tmp_path, CHANGE, ["engine"], left(tmp_path, changes=True, weights="old"))
    bringing = KIND.model_copy(update={"brings": True})
    new = TimeLeft(history.read(tmp_path), bringing, True, "new", [1200.0])
    assert new.begin("check").left_seconds == pytest.approx(sum(CHANGE.values()) + 10 + 1200 - 8)
    new.end("check", changed=False)
    assert new.begin("weights") == (1200.0, pytest.approx(1200 + 260 + 4 + 4))
    # Without a record there is the plan's time of this stage alone.
    assert TimeLeft(history.RunHistory(), bringing, True, "new", [1200.0]).begin("weights") == (1200.0, None)
    # These weights were brought by a run of this kind: what it took counts.
    play(tmp_path, FIRST, list(FIRST), TimeLeft(history.RunHistory(), bringing, True, "new", [1200.0]))
    again = TimeLeft(history.read(tmp_path), bringing, True, "new", [1200.0])
    assert again.begin("weights").stage == 900


def test_a_stage_that_comes_for_each_replica_is_counted(tmp_path: Path) -> None:
    begun = [("serve", 30.0), ("standby", 5.0), ("serve", 60.0), ("standby", 5.0)]
    stages, now = [], 0.0
    for stage, seconds in begun:
        stages.append(StageRun(stage=stage, began=now, seconds=seconds, changed=1))
        now += seconds
    run = record(stages=stages, seconds=now)
    found = TimeLeft(history.RunHistory(runs=[run]), KIND)
    lefts = []
    for stage, _ in begun:
        lefts.append(found.begin(stage))
        found.end(stage, changed=True)
    assert lefts == [(30, 100), (5, 70), (60, 65), (5, 5)]
    assert found.begin("serve") == (None, None)


def record(**fields: object) -> RunRecord:
    values = {"at": "2026-01-01T00:00:00+00:00", "headfirst": "0", "kind": KIND, "seconds": 1.0}
    return RunRecord.model_validate({**values, "completed": True, "stages": [], **fields})


def test_the_file_is_private_and_bounded(tmp_path: Path) -> None:
    finding = Finding("id", "warning", "node1", "\x1b[31m\ud800" + "x" * 100_000)
    for number in range(KEEP + 7):
        findings = [finding] * (500 if number >= KEEP else 1)
        history.add_run(tmp_path, record(seconds=number, findings=findings, comm={"a": number}))
    file = tmp_path / history.FILE
    found = history.read(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [run.seconds for run in found.runs] == list(range(7, KEEP + 7))
    kept = [run.findings is not None for run in found.runs]
    assert kept == [False] * (KEEP - KEEP_RESULTS) + [True] * KEEP_RESULTS
    assert found.runs[-1].comm == {"a": KEEP + 6}
    assert file.stat().st_size < history.MAX_BYTES / 4


def test_runs_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: history.add_run(tmp_path, record(seconds=n)), range(40)))
    assert sorted(run.seconds for run in history.read(tmp_path).runs) == list(range(40))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"runs": [{"at": 1}]}', "\0" * 50, '{"runs": 5}'])
def test_a_damaged_file_is_no_obstacle(tmp_path: Path, text: str) -> None:
    (tmp_path / history.FILE).write_text(text)
    assert history.read(tmp_path) == history.RunHistory()
    history.add_run(tmp_path, record())
    assert len(history.read(tmp_path).runs) == 1


def test_a_full_disk_is_a_warning(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headfirst.control.run.reporters.recording.add_run", full)
    shown = Collector()
    with recorded(prepared.cluster, RunOptions([A100]), "up", shown):
        pass
    (event,) = shown.events
    assert isinstance(event, FindingsReported)
    assert "No space left" in event.findings[0].what


def run_up(prepared: Prepared, changed: int, plan: Plan | None = None, *, verb: str = "up") -> StageStarted:
    """One run of a verb through `recorded`; its first stage."""
    shown, options = Collector(), RunOptions([A100])
    with recorded(prepared.cluster, options, verb, shown, plan) as reporter:
        reporter.handle(StageStarted("weights", "Bring"))
        reporter.handle(StageDone("weights", 1.0, changed, ()))
        if plan:
            keep_plan(reporter, plan, {})
    return next(event for event in shown.events if isinstance(event, StageStarted))


def test_the_kind_of_a_run_follows_from_the_plan_and_the_last_run(prepared: Prepared) -> None:
    plan = prepared.plan
    first = run_up(prepared, 9, plan)
    assert first.expected_seconds == plan.services[0].weights.time.seconds
    assert first.left_seconds is None
    assert run_up(prepared, 0, plan).left_seconds is None  # the first run that changes nothing
    assert run_up(prepared, 0, plan).left_seconds is not None
    changed = prepared.replanned(prepared.cluster.services[0], served_model_name="other")
    assert run_up(prepared, 1, changed).left_seconds is None
    run_up(prepared, 3, verb="down")
    assert run_up(prepared, 3, plan).left_seconds is None
    runs = history.read(cluster_folder(prepared.cluster)).runs
    kinds = [(run.kind.verb, run.kind.after, run.kind.brings, run.changed) for run in runs]
    assert kinds == [
        ("up", "", True, True),
        ("up", "up", False, False),
        ("up", "up", False, False),
        ("up", "up", False, True),
        ("down", "up", False, True),
        ("up", "down", False, True),
    ]


def test_a_run_inside_another_one_is_part_of_it(prepared: Prepared) -> None:
    options = RunOptions([A100])
    with recorded(prepared.cluster, options, "replace", Collector()) as outer:
        for verb in ("down", "up"):
            with recorded(prepared.cluster, options, verb, outer) as inner:
                assert inner is outer
    (run,) = history.read(cluster_folder(prepared.cluster)).runs
    assert run.kind.verb == "replace"


def test_check_mode_is_not_recorded(prepared: Prepared) -> None:
    shown = Collector()
    with recorded(prepared.cluster, RunOptions([A100], check=True), "up", shown) as reporter:
        assert reporter is shown
    assert history.read(cluster_folder(prepared.cluster)).runs == []


def test_a_failed_check_is_kept_with_its_findings(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = load_or_create(prepared.cluster).engine_api_key
    finding = Finding("disk", "error", "node01", "disk is full", "because", "Make room.")

    def failing(*arguments: object, **_: object) -> None:
        reporter = arguments[4]
        assert isinstance(reporter, RecordingReporter)
        reporter.handle(StageStarted("check", "Prove"))
        reporter.handle(FindingsReported("check", "node01", (finding,)))
        reporter.handle(StageDone("check", 1.0, 0, ("node01",)))
        raise NotReadyError("disk is full")

    monkeypatch.setattr(checking, "prepare", lambda *_, **__: prepared)
    monkeypatch.setattr(checking, "run_stages", failing)
    with pytest.raises(NotReadyError):
        checking.check(RunOptions([A100]), Collector())
    folder = cluster_folder(prepared.cluster)
    (run,) = history.read(folder).runs
    assert (run.completed, run.findings, run.stages) == (False, [finding], [])
    assert secret not in (folder / history.FILE).read_text()


def test_verbs_without_events_are_recorded_too(prepared: Prepared) -> None:
    options = RunOptions([A100], service="DeepSeek-R1")
    for expected in (None, pytest.approx(0, abs=1)):
        with timed(prepared.cluster, options, "test", "39 cases") as recording:
            assert recording.begin("chat.plain").left_seconds == expected
            recording.end("chat.plain")
    (_, run) = history.read(cluster_folder(prepared.cluster)).runs
    assert run.kind.asked == "39 cases --service DeepSeek-R1"


def verb_runs(verb: str) -> Callable[[RunOptions], object]:
    """The function of a verb; its work is a fixture."""
    removed = membership.Change(A100, "", "", "node04", "remove")

    def target(options: RunOptions) -> DownTarget:
        return DownTarget(load([A100]), options, ["node01"])

    return {
        "rollback": lambda options: rolling.rollback(options, Collector()),
        "down": lambda options: stopping.down(target(options), Collector(), data=False),
        "down --data": lambda options: stopping.down(target(options), Collector(), data=True),
        "backup": lambda options: backups.listed(options, Collector()),
        "remove": lambda options: membership.carry_out(removed, options, Collector()),
        "up": lambda options: bringing.up(options, Collector()),
    }[verb]


@pytest.mark.parametrize("verb", ["rollback", "down", "down --data", "backup", "remove", "up"])
def test_every_verb_that_takes_a_minute_is_recorded(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(*arguments: object, **_: object) -> RunResult:
        (reporter,) = [one for one in arguments if isinstance(one, RecordingReporter)]
        reporter.handle(StageStarted("stage", "Title"))
        reporter.handle(StageDone("stage", 1.0, 1, ()))
        stats = {"webui_backups": []}
        return RunResult(True, False, {}, [], [], [], [], 1.0, A100, stats=stats)

    def nested(prepared: Prepared, _: object, reporter: Reporter, **__: object) -> UpOutcome:
        return UpOutcome(prepared.plan, work(reporter), A100, A100, False)

    for module in (rolling, stopping, backups, membership):
        monkeypatch.setattr(module, "run_lock", lambda *_: nullcontext(Mock()))
    for module in (rolling, stopping):
        monkeypatch.setattr(module, "run_phases", work)
    monkeypatch.setattr(rolling, "previous", lambda *_: Version("v1", 1.0, defaultdict(str)))
    monkeypatch.setattr(backups, "run_stages", work)
    monkeypatch.setattr(bringing, "prepare", lambda *_, **__: prepare([A100], [], probe=False))
    monkeypatch.setattr(bringing, "_up", nested)
    monkeypatch.setattr(membership, "_stop", lambda *_: None)
    monkeypatch.setattr(membership, "_write", lambda _: None)
    verb_runs(verb)(RunOptions([A100]))
    (run,) = history.read(cluster_folder(load([A100]))).runs
    assert (run.kind.verb.removesuffix("s"), run.completed) == (verb, True)
    # A rollback reads the versions first.
    assert [stage.stage for stage in run.stages] == ["stage"] * (2 if verb == "rollback" else 1)
    assert bool(run.containers) == (verb in ("up", "remove"))


def test_how_the_time_left_is_shown() -> None:
    event = StageStarted("engine", "Start", expected_seconds=43.0, left_seconds=70.0)
    out = io.StringIO()
    for reporter in (PlainReporter(out), JsonReporter(out)):
        reporter.handle(event)
        reporter.handle(replace(event, expected_seconds=None, left_seconds=None))
    with_it, without, known, unknown = out.getvalue().splitlines()
    assert with_it == "== engine: Start (about 43s, 1m 10s to the end)"
    assert without == "== engine: Start"
    assert json.loads(known)["left_seconds"] == 70.0
    assert json.loads(unknown)["left_seconds"] is None


def test_the_live_display_counts_down_and_never_below_nothing() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, no_color=True)
    reporter, clock = LiveReporter(console), Clock()
    reporter._board.clock = clock
    reporter.handle(StageStarted("engine", "Start", expected_seconds=43.0, left_seconds=70.0))
    clock.now += 30
    with console.capture() as capture:
        console.print(reporter._draw())
    assert "30s, about 40s left" in capture.get()
    clock.now += 50
    with console.capture() as capture:
        console.print(reporter._draw())
    assert "left" not in capture.get()
    assert "1m 20s" in capture.get()


def test_the_history_of_a_cluster_is_beside_its_credentials(prepared: Prepared) -> None:
    run_up(prepared, 1, prepared.plan)
    files = {path.name for path in cluster_folder(load([A100])).iterdir()}
    assert history.FILE in files
