"""Work on the controller: packages come first, no job is silent, a failure is shown at once."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from collecting import Collector
from headfirst.common.errors import NotReadyError
from headfirst.control.deployment import lab_nodes
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running import local_work
from headfirst.control.deployment.running.local_work import JobAdvance, run_jobs
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs import up
from headfirst.control.images import build
from headfirst.control.lab import lifecycle
from headfirst.control.machine import packages
from headfirst.control.run.events import (
    Event,
    FindingsReported,
    HostFailed,
    Progress,
    StageStarted,
    TaskStarted,
)

LAB = Path(__file__).parents[2] / "inventories" / "lab.ini"


def test_a_job_that_reports_nothing_is_shown_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_work, "HEARTBEAT_S", 0.2)
    shown = threading.Event()

    class Waiting(Collector):
        def handle(self, event: Event) -> None:
            super().handle(event)
            if isinstance(event, Progress) and event.note:
                shown.set()

    def job(advance: JobAdvance) -> bool:
        advance("downloading (usually 1–3 min)", 0, 4)
        return shown.wait(30)

    reporter = Waiting()
    results, _ = run_jobs(reporter, "prepare", "Images", {"image": job})
    assert results == {"image": True}
    repeated = [event for event in reporter.events if isinstance(event, Progress) and event.note]
    assert repeated[0].what == "downloading (usually 1–3 min)"
    assert repeated[0].note.startswith("running for ")


def test_a_failure_is_shown_while_other_jobs_go_on() -> None:
    failed = threading.Event()

    class Seeing(Collector):
        def handle(self, event: Event) -> None:
            super().handle(event)
            if isinstance(event, HostFailed):
                failed.set()

    def breaking(advance: JobAdvance) -> None:
        raise NotReadyError("no network", hint="Check it.")

    reporter = Seeing()
    with pytest.raises(NotReadyError, match="no network"):
        run_jobs(reporter, "prepare", "Images", {"a": breaking, "b": lambda advance: failed.wait(30)})
    [event] = [event for event in reporter.events if isinstance(event, HostFailed)]
    assert (event.host, event.message) == ("a", "no network")


def test_a_warning_of_a_job_stays_in_the_output() -> None:
    reporter = Collector()
    run_jobs(reporter, "lab", "Nodes", {"lab": lambda advance: advance.warn("pip's find-links is left out")})
    [event] = [event for event in reporter.events if isinstance(event, FindingsReported)]
    assert [(found.severity, found.what) for found in event.findings] == [
        ("warning", "pip's find-links is left out")
    ]


def test_packages_of_all_jobs_are_installed_in_one_step_before_any_job_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    installed: list[list[str]] = []
    done: list[str] = []

    def install(names: list[str], progress: Any) -> None:
        time.sleep(0.2)
        assert done == []
        installed.append(names)

    def job(name: str) -> Any:
        return lambda *arguments: done.append(name)

    monkeypatch.setattr(packages, "missing", lambda wanted: sorted({package.name for package in wanted}))
    monkeypatch.setattr(packages, "install", install)
    monkeypatch.setattr(build, "build", lambda wanted, *_: done.append(wanted.name))
    monkeypatch.setattr(lifecycle, "up", job("lab"))
    monkeypatch.setattr(lab_nodes, "share_demo_checkpoint", lambda model: None)
    reporter = Collector()
    options = RunOptions(
        inventories=[LAB], extra_vars=[], limit=None, tags=[], check=False, diff=False, verbosity=0
    )
    up._prepare_here(prepare([LAB], [], probe=False), options, reporter, builds=True)
    [names] = installed
    assert {"docker.io", "mmdebstrap", "openssh-client", "debian-archive-keyring"} <= set(names)
    assert sorted(done) == ["lab", "open-webui", "sglang-cpu"]
    stages = [event.stage for event in reporter.events if isinstance(event, StageStarted)]
    assert stages == ["packages", "prepare"]
    assert len([event for event in reporter.events if isinstance(event, TaskStarted)]) == 4
