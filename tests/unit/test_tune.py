"""`deploy tune` without a cluster: verdicts, candidates of a real plan, the order of its work, its output.

`up` and the measurements are fixtures: a service whose speed follows from its arguments.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError, StoppedError
from headfirst.control.bench import trial
from headfirst.control.bench.load import SHAPES, Load
from headfirst.control.bench.requests import Scale
from headfirst.control.bench.result import Point, RequestTimes, point
from headfirst.control.bench.runner import BenchRun, BenchSettings, LoadWatcher
from headfirst.control.bench.trial import Judged
from headfirst.control.cli.shown.tune import TuneProgress
from headfirst.control.deployment.measuring import restored as restoring
from headfirst.control.deployment.measuring import tune as tuning
from headfirst.control.deployment.measuring.bench import Workload
from headfirst.control.deployment.measuring.candidates import TuneCandidate, changed, merged, of_advice
from headfirst.control.deployment.measuring.tune import Wishes, intended
from headfirst.control.deployment.measuring.written import write_arguments
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.run import history
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.control.terminal import Terminal
from headfirst.decide.diagnose.types import Advice
from measured_subject import SUBJECT

LAB = Path(__file__).resolve().parents[2] / "inventories" / "lab.ini"
LOAD = Load(kind="concurrency", value=4)


def test_a_difference_counts_beyond_the_noise() -> None:
    base = [100.0, 102.0, 98.0]
    assert trial.judge(base, [104, 103, 106], "throughput").verdict == "no difference"
    assert trial.judge(base, [110, 111, 112], "throughput").verdict == "better"
    assert trial.judge(base, [90, 91, 92], "throughput").verdict == "worse"
    assert trial.judge(base, [90, 91, 92], "ttft").verdict == "better"
    assert trial.judge(base, None, "tpot").verdict == "failed"
    found = trial.judge(base, [110, 111, 112], "throughput")
    assert (found.ratio, found.noise) == (pytest.approx(1.11), pytest.approx(0.06))


def test_the_best_is_the_highest_rate_or_the_shortest_time() -> None:
    judged = [Judged(verdict="better", ratio=ratio) for ratio in (1.1, 1.3, 1.2)]
    assert trial.best(judged, "throughput") == 1
    assert trial.best(judged, "ttft") == 0
    assert trial.best([Judged(verdict="no difference", ratio=2)], "throughput") is None


def test_arguments_replace_those_of_the_same_name() -> None:
    given = ["--chunked-prefill-size", "8192", "--enable-metrics", "--tp=2"]
    assert merged(given, {"--chunked-prefill-size": "4096"}) == [
        "--enable-metrics", "--tp=2", "--chunked-prefill-size", "4096",
    ]  # fmt: skip
    assert merged(["--max-model-len", "4096", "-O3"], {"--max-model-len": "8192"}) == [
        "-O3", "--max-model-len", "8192",
    ]  # fmt: skip
    assert merged(["--seed", "-1", "-O", "3"], {"--seed": "7"}) == ["-O", "3", "--seed", "7"]
    assert merged(["--max_num_seqs=64", "--no-a", "-O3"], {"--max-num-seqs": "8", "--a": ""}) == [
        "-O3", "--max-num-seqs", "8", "--a",
    ]  # fmt: skip
    assert merged(given, {"--tp": "4", "--x": ""}) == [*given[:3], "--tp", "4", "--x"]


def wishes(**changes: Any) -> Wishes:
    workload = Workload(SHAPES["chat"], [LOAD], number=4)
    return Wishes(**{"workload": workload, "goal": "throughput", "repeats": 2, **changes})


OPTIONS = RunOptions([LAB])


def test_candidates_come_from_the_presets_that_the_plan_accepts() -> None:
    plan = intended(OPTIONS, wishes())
    listed = {str(one) for one in plan.candidates}
    assert "--chunked-prefill-size 4096" in listed
    assert any(arguments.startswith("--attn-dp-size 2 --ep-size 2 ") for arguments in listed)
    assert not any("parser" in one for one in listed)
    assert plan.restarts == len(plan.candidates) + 1
    assert len(intended(OPTIONS, wishes(most=1)).candidates) == 1


def test_what_comes_with_a_parser_is_no_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's --enable-auto-tool-choice does not work without the parser."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    settings = {
        "engine": "vllm",
        "engine_version": "0.32.0",
        "model": "Qwen/Qwen3-8B",
        "model_source": "huggingface",
    }
    options = RunOptions([LAB], [json.dumps(settings)])
    plan = intended(options, wishes())
    assert not any("tool-choice" in str(one) for one in plan.candidates)
    assert not any("tool-choice" in arguments for arguments in plan.left_out)


def test_what_is_in_use_is_no_candidate() -> None:
    options = RunOptions([LAB], [json.dumps({"engine_args": "--chunked-prefill-size 4096"})])
    assert "--chunked-prefill-size 4096" not in {str(one) for one in intended(options, wishes()).candidates}


SERVICES = LAB.with_name("h100x2-services.ini")


def test_of_several_services_one_must_be_named() -> None:
    with pytest.raises(InputError, match="several") as raised:
        intended(RunOptions([SERVICES]), wishes())
    assert "--service NAME (chat, embedding)" in (raised.value.hint or "")
    with pytest.raises(InputError, match="names a replica"):
        intended(RunOptions([SERVICES], service="chat/1"), wishes())


def test_a_candidate_is_for_the_service_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(tuning, "last_start", lambda *_: None)
    extra = json.dumps({"model_source": "huggingface", "weights_dir": "/w"})
    options = RunOptions([SERVICES], [extra], service="chat")
    known = partial(prepare, probe=False)
    monkeypatch.setattr(tuning, "prepare", lambda *given, probe, service: known(*given, service=service))
    plan = intended(options, wishes())
    candidate = TuneCandidate(arguments={"--schedule-policy": "fcfs"}, why="", source="")
    changed_options = changed(options, plan.service, candidate)
    assert changed_options.engine_args == {"chat": ["--schedule-policy", "fcfs"]}
    assert changed_options.extra_vars == [extra]
    other = known([SERVICES], [extra], engine_args=changed_options.engine_args)
    commands = {
        service.name: service.replicas[0].nodes[0].container.command for service in other.plan.services
    }
    assert "fcfs" in commands["chat"]
    assert "fcfs" not in commands["embedding"]
    assert all(candidate.source for candidate in plan.candidates)


def test_advice_adds_values_that_are_not_known_yet() -> None:
    advice = [
        Advice(setting="--a", change="", why="w", values=["1", "2"]),
        Advice(setting="--b", change="", why="w"),
    ]
    known = [TuneCandidate(arguments={"--a": "1"}, why="", source="")]
    assert [str(one) for one in of_advice(advice, known)] == ["--a 2"]


ADVICE = [Advice(setting="--schedule-policy", change="", why="lpm sorts them all", values=["fcfs"])]


class Cluster:
    """Fixture: `up` sets the arguments; a service with them has the speed of `speeds`, by their last word."""

    def __init__(self, speeds: dict[str, float | BaseException]) -> None:
        self.speeds = speeds
        self.log: list[str] = []
        self.now = ""
        self.advice: list[Advice] = []

    def figures(self, *_: object) -> Any:
        self.log.append("figures")
        if not self.advice:
            raise NotReadyError("the engine has no metrics")
        return SimpleNamespace(advice=self.advice)

    def up(self, options: RunOptions, _: object) -> None:
        name = options.engine_args[None][-1] if options.engine_args else "own"
        self.log.append(f"up {name}")
        if isinstance(fault := self.speeds.get(f"up {name}"), BaseException):
            raise fault
        self.now = name

    @contextmanager
    def opened(self, *_: object) -> Iterator[Any]:
        yield SimpleNamespace(subject=SUBJECT, run=self)

    def measure(self, load: Load, halfway: Callable[[], None] | None = None) -> Point:
        self.log.append(f"measure {self.now}")
        if halfway:
            halfway()
        speed = self.speeds[self.now]
        if isinstance(speed, BaseException):
            raise speed
        noise = 1 + len(self.log) % 3 / 100
        return point(
            load, [RequestTimes(start=0, end=100 / speed * noise, first=0.1, prompt=9, answer=11)] * 4, 0
        )


def tried(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    speeds: dict[str, float | BaseException],
    names: Sequence[str],
    advice: Sequence[Advice] = (),
) -> tuple[tuning.Tuned | BaseException, Cluster]:
    cluster = Cluster(speeds)
    cluster.advice += advice
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(tuning, "up", cluster.up)
    monkeypatch.setattr(restoring, "up", cluster.up)
    monkeypatch.setattr(tuning.bench, "opened", cluster.opened)
    monkeypatch.setattr(tuning, "tuning", cluster.figures)
    plan = intended(OPTIONS, wishes())
    plan.candidates[:] = [TuneCandidate(arguments={"--x": name}, why="", source="") for name in names]
    console = Terminal(quiet=True)
    try:
        with TuneProgress(console, []) as shown, QuietReporter() as quiet:
            return tuning.tune(OPTIONS, wishes(), plan, shown, quiet)[0], cluster
    except BaseException as error:  # the test judges it
        return error, cluster


def test_each_candidate_is_measured_and_the_service_restored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    crash = HeadfirstError("it does not start")
    speeds: dict[str, float | BaseException] = {
        "own": 10,
        "fast": 15,
        "slow": 5,
        "same": 10,
        "up crash": crash,
    }
    found, cluster = tried(monkeypatch, tmp_path, speeds, ["slow", "fast", "crash", "same"])
    assert isinstance(found, tuning.Tuned)
    verdicts = [one.judged.verdict for one in found.trials]
    assert verdicts == ["worse", "better", "failed", "no difference"]
    assert found.trials[2].judged.why == "it does not start"
    assert found.best == 1
    assert found.best_arguments(["--y", "1"]) == ["--y", "1", "--x", "fast"]
    assert len(found.baseline) == 4
    assert cluster.log[:4] == ["up own", "measure own", "figures", "measure own"]
    assert cluster.log[-3:] == ["up own", "measure own", "measure own"]
    (kept,) = tmp_path.rglob("tune.json")
    assert tuning.Tuned.model_validate_json(kept.read_text()) == found
    (file,) = tmp_path.rglob(history.FILE)
    (run,) = history.read(file.parent).runs
    assert [stage.stage for stage in run.stages] == ["inventory", *["trial"] * 4, "inventory"]


def test_advice_under_load_is_tried_once_the_plan_accepts_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    unknown = Advice(setting="--no-such-flag", change="", why="", values=["1"])
    found, cluster = tried(monkeypatch, tmp_path, {"own": 10, "fcfs": 15}, [], [*ADVICE, unknown])
    assert isinstance(found, tuning.Tuned)
    assert [str(one.candidate) for one in found.trials] == ["--schedule-policy fcfs"]
    assert found.best == 0
    assert list(found.left_out) == ["--no-such-flag 1"]
    assert cluster.log.count("figures") == 1


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), StoppedError("stopped before the end")])
def test_an_interrupted_run_restores_the_service_and_tries_nothing_more(
    fault: BaseException, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    speeds: dict[str, float | BaseException] = {"own": 10, "up one": fault, "two": 10}
    found, cluster = tried(monkeypatch, tmp_path, speeds, ["one", "two"])
    assert found is fault
    assert cluster.log[-2:] == ["up one", "up own"]


def test_sigterm_restores_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    ups: list[str] = []
    monkeypatch.setattr(restoring, "up", lambda *_: ups.append("up"))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), QuietReporter() as quiet, restoring.restored(OPTIONS, quiet):
        os.kill(os.getpid(), signal.SIGTERM)
    assert ups == ["up"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_service_that_cannot_be_restored_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise HeadfirstError("the head is gone", where="node1")

    monkeypatch.setattr(restoring, "up", fail)
    failed = pytest.raises(HeadfirstError, match="not as the inventory has it: the head is gone")
    with failed as caught, QuietReporter() as quiet, restoring.restored(OPTIONS, quiet):
        pass
    assert "deploy up" in (caught.value.hint or "")


def test_the_best_is_written_into_an_ini_file(tmp_path: Path) -> None:
    file = tmp_path / "cluster.ini"
    file.write_text("[all:vars]\nlab=true\nengine_args=--old 1  # mine\n[head]\na\n")
    assert write_arguments([file], ["--new", '{"a": 1}']) == file
    assert file.read_text() == "[all:vars]\nlab=true\nengine_args=--new '{\"a\": 1}'\n[head]\na\n"
    file.write_text("[head]\na\n[all:vars]\nlab=true\n")
    write_arguments([file], ["--new"])
    assert file.read_text() == "[head]\na\n[all:vars]\nengine_args=--new\nlab=true\n"
    file = tmp_path / "cluster.yml"
    file.write_text("all: {vars: {engine_args: --old}, children: {head: {hosts: {a: }}}}\n")
    before = file.read_text()
    with pytest.raises(InputError) as caught:
        write_arguments([file], ["--new"])
    assert "engine_args=--new" in (caught.value.hint or "")
    assert file.read_text() == before


CHAT_SECTION = "[chat]\na engine_env=x\n[chat:vars]\nmodel=m\n[other]\nb\n[other:vars]\nmodel=n\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[all:vars]\nengine_args=--old\n", "[all:vars]\nengine_args=--old\n"),
        ("", ""),
    ],
)
def test_the_best_of_a_service_is_written_for_its_group(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "cluster.ini"
    file.write_text(CHAT_SECTION + before)
    write_arguments([file], ["--new"], "chat")
    written = CHAT_SECTION.replace("model=m", "engine_args=--new\nmodel=m") + after
    assert file.read_text() == written
    write_arguments([file], ["--newer"], "chat")
    assert file.read_text() == written.replace("--new", "--newer")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[head]\na\n[all:vars]", "[head]\na\n[all:vars]\nengine_args=--new\n"),
        ("[head]\na\n[all:vars]\nengine_args=--old", "[head]\na\n[all:vars]\nengine_args=--new\n"),
        (
            "[head]\na\n[all:vars]\nengine_args=1\nengine_args=2\n",
            "[head]\na\n[all:vars]\nengine_args=1\nengine_args=--new\n",
        ),
        ("[head]\r\na\r\n[all:vars]\r\nx=1\r\n", "[head]\r\na\r\n[all:vars]\r\nengine_args=--new\r\nx=1\r\n"),
    ],
)
def test_other_lines_and_their_ends_stay(before: str, after: str, tmp_path: Path) -> None:
    (tmp_path / "real.ini").write_bytes(before.encode())
    link = tmp_path / "cluster.ini"
    link.symlink_to("real.ini")
    assert write_arguments([link], ["--new"]) == link
    assert (link.is_symlink(), link.read_bytes()) == (True, after.encode())


@pytest.mark.parametrize(
    ("text", "extra_vars"),
    [
        ("[head]\na engine_args=--mine\n[all:vars]\nx=1\n", []),  # the host's own wins
        ("[head]\na\n[all:vars]\nx=1\n", ["engine_args=--extra"]),
    ],
)
def test_arguments_that_ansible_would_not_read_are_not_written(
    text: str, extra_vars: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "cluster.ini"
    file.write_text(text)
    with pytest.raises(InputError, match="cannot be written"):
        write_arguments([file], ["--new"], None, extra_vars)
    assert file.read_text() == text


def test_a_line_that_wins_over_the_group_is_not_written_around(tmp_path: Path) -> None:
    file = tmp_path / "cluster.ini"
    file.write_text(CHAT_SECTION)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "chat.yml").write_text("engine_args: --old\n")
    with pytest.raises(InputError, match="cannot be written") as raised:
        write_arguments([file], ["--new"], "chat")
    assert raised.value.hint == "Write: engine_args=--new for the group chat"
    assert file.read_text() == CHAT_SECTION


def test_half_of_the_requests_is_noticed_once() -> None:
    """Also where the tool reports it late."""
    seen: list[int] = []

    def run(job: object, progress: Callable[[int], None]) -> list[int]:
        for done in (1, 3, 4):
            seen.append(done)
            progress(done)
        return [0]

    def attempt(*_: object) -> RequestTimes:
        return RequestTimes(start=0, end=1, first=0.1, prompt=9, answer=11)

    tool: Any = SimpleNamespace(run=run, attempt=attempt)
    settings = BenchSettings(SHAPES["chat"], 0, "mark", number=4, warmup=0)
    BenchRun(tool, "m", settings, Scale(1, 0), LoadWatcher()).measure(LOAD, lambda: seen.append(0))
    assert seen == [1, 3, 0, 4]
