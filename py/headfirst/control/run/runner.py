"""Runs a playbook with ansible-runner, shows it through a Reporter, and returns what came of it."""

from __future__ import annotations

import os
import queue
import shlex
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import ansible_runner

from headfirst.common.untrusted import for_terminal, shown
from headfirst.control.paths import state_dir
from headfirst.control.run.cancel import Canceller
from headfirst.control.run.environment import allow_open_files, ansible_environment, forks
from headfirst.control.run.events import Event, RunDone, RunStarted
from headfirst.control.run.private_dir import PrivateDir, private_dir
from headfirst.control.run.progress_file import ProgressTail
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import RunResult, RunTally
from headfirst.control.run.translate import Translator, published
from headfirst.decide.scrub import Scrubber

_TICK_S = 0.1
_LOGGED = 1 << 20  # characters of an event: hosts must not fill the disk


def run_playbook(
    playbook: str | Path,
    inventories: Sequence[Path],
    *,
    reporter: Reporter,
    log_file: Path,
    extra_vars: Sequence[str] = (),
    limit: str | None = None,
    tags: str | None = None,
    check: bool = False,
    diff: bool = False,
    verbosity: int = 0,
    hosts: int = 1,
    secrets: Sequence[str] = (),
) -> RunResult:
    """Run `playbook` (a path, or a collection's playbook such as `headfirst.serving.up`) on the hosts.

    `extra_vars` (`KEY=VALUE`, `@FILE` or JSON), `limit`, `tags`, `check`, `diff` and `verbosity`
    mean what they mean to ansible-playbook; a secret belongs into an inventory, because -e is seen by `ps`.
    `hosts` is how many take part, and so how many Ansible works on at the same time (see environment.py).
    Ansible's own output is appended to `log_file` (mode 0600) and to nothing else. No value of `secrets`
    reaches the log, an event or the result. Ctrl-C, SIGTERM and a closed terminal stop the run: the
    result then has `cancelled` set. A failed run is a result, not an exception (see failures.py). The caller
    opens `reporter` (it is a context manager), around one run or several.
    """
    flags = [flag for flag, enabled in (("--check", check), ("--diff", diff)) if enabled]
    for text in extra_vars:
        flags += ["--extra-vars", text]
    options: dict[str, Any] = {
        "playbook": str(playbook.resolve() if isinstance(playbook, Path) else playbook),
        "inventory": [str(path.resolve()) for path in inventories],
        "limit": limit,
        "tags": tags,
        "cmdline": shlex.join(flags),
        "verbosity": verbosity,
    }
    with private_dir() as private, open_log(log_file) as log:
        options["envvars"] = ansible_environment(private, forks(hosts))
        allow_open_files()
        return _Run(options, private, reporter, log, log_file, Scrubber(secrets)).execute()


@dataclass
class _Run:
    """One run: ansible-runner in a thread fills a queue, the caller's thread empties it."""

    options: dict[str, Any]
    private: PrivateDir
    reporter: Reporter
    log: TextIO
    log_file: Path
    scrubber: Scrubber
    events: queue.SimpleQueue[dict[str, Any]] = field(default_factory=queue.SimpleQueue)
    cancel: Canceller = field(default_factory=Canceller)
    translator: Translator = field(default_factory=Translator)
    tally: RunTally = field(default_factory=RunTally)
    statistics: dict[str, Any] = field(default_factory=dict)
    published: dict[str, Any] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    crash: Exception | None = None
    returned: int = 1

    def __post_init__(self) -> None:
        self.progress = ProgressTail(self.private.progress, on_bad_line=self._log_bad_progress)

    def execute(self) -> RunResult:
        started = time.monotonic()
        self._report(RunStarted(self.options["playbook"], str(self.log_file)))
        thread = threading.Thread(target=self._run_ansible, name="ansible-runner", daemon=True)
        with self.cancel.on_signals():
            thread.start()
            try:
                while thread.is_alive():
                    self._pump(wait=True)
                self._pump(wait=False)
            finally:  # a reporter that fails (a closed pipe) must not leave Ansible running
                self.cancel.end_now(thread)
        if self.crash is not None:
            raise self.crash
        for event in self.translator.finish(completed=False):
            self._report(event)
        result = self._result(time.monotonic() - started)
        failed = tuple(failure.host for failure in (*result.unreachable, *result.failed))
        self._report(
            RunDone(result.ok, result.cancelled, result.seconds, result.changed, failed, str(self.log_file))
        )
        return result

    def _run_ansible(self) -> None:
        """The thread's body; ansible-runner's own fast callbacks only fill the queue."""
        try:
            runner = ansible_runner.interface.init_runner(
                private_data_dir=str(self.private.root),
                # Relative paths in an inventory (a key file) count from where the user stands.
                project_dir=str(Path.cwd()),
                event_handler=self._on_ansible_event,
                cancel_callback=self.cancel.must_kill,
                # The callback is polled this often (s); no copy of the output is kept in the folder.
                settings={"pexpect_timeout": 0.25, "suppress_output_file": True},
                fact_cache_type="memory",
                quiet=True,
                **self.options,
            )
            self._artifact_dir = runner.config.artifact_dir
            runner.run()
            self.returned = runner.rc
        except Exception as error:  # raised again in the caller's thread
            self.crash = error

    def _on_ansible_event(self, event: dict[str, Any]) -> bool:
        """Runs in ansible-runner's thread. False: do not write the event into the folder."""
        if self.cancel.ansible_pid is None and "pid" in event:
            self.cancel.ansible_pid = event["pid"]
        if event["event"] == "playbook_on_start":
            self.private.forget_secrets(self._artifact_dir)
        self.events.put(event)
        return False

    def _pump(self, wait: bool) -> None:
        """Handle what has arrived; with `wait`, sleep up to one tick for the first event."""
        timeout = _TICK_S if wait else 0
        while True:
            try:
                event = self.events.get(timeout=timeout)
            except queue.Empty:
                break
            self._report_progress()  # what was written before the event belongs to the stage before it
            self._handle(event)
            timeout = 0
        self._report_progress()
        self.reporter.tick()

    def _report_progress(self) -> None:
        for state in self.progress.read(self.translator.stage):
            self._report(state)

    def _handle(self, event: dict[str, Any]) -> None:
        event = self.scrubber.value(event)
        text = event.get("stdout", "").replace("\r\n", "\n").strip("\n")
        if event["event"] in ("playbook_on_play_start", "playbook_on_task_start"):
            text = f"\n{event['created'][:19]} {text.strip()}"
        if text:
            self.log.write(for_terminal(text[:_LOGGED]) + "\n")
        if event["event"] in ("verbose", "error") and "ERROR" in text[:12]:
            self.complaints.append(text)
        if event["event"] == "playbook_on_stats":
            self.statistics = event["event_data"]
        self.published.update(published(event))
        for translated in self.translator.translate(event):
            self._report(translated)

    def _report(self, event: Event) -> None:
        self.tally.note(event)
        self.reporter.handle(event)

    def _log_bad_progress(self, line: str) -> None:
        self.log.write(f"headfirst: not a progress line: {shown(self.scrubber.text(line))}\n")

    def _result(self, seconds: float) -> RunResult:
        ok = self.returned == 0
        failures = [] if ok else self.tally.final_failures(self.statistics)
        silent = [
            failure for failure in self.tally.failures if failure.unreachable and failure not in failures
        ]
        return RunResult(
            ok=ok,
            cancelled=self.cancel.requested and not ok,
            changed=dict(sorted(self.tally.changed.items())),
            failed=[failure for failure in failures if not failure.unreachable],
            unreachable=[failure for failure in failures if failure.unreachable],
            findings=self.tally.findings,
            stages=self.tally.stages,
            seconds=seconds,
            log_file=self.log_file,
            silent=silent,
            stats=self.published,
            ansible_error="\n".join(self.complaints) if not ok and not failures else None,
        )


KEEP = 20


def new_log_file(cluster: str) -> Path:
    """Path of a fresh log `<cluster>-<time>.log`; the folder exists, older logs beyond KEEP are gone."""
    folder = state_dir("logs")
    old = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)
    for path in old[: max(0, len(old) - KEEP + 1)]:
        path.unlink(missing_ok=True)
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return folder / f"{cluster}-{stamp}-{os.getpid()}.log"


def open_log(path: Path) -> TextIO:
    """Open `path` for appending, mode 0600, line by line, so that it can be followed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return os.fdopen(descriptor, "a", encoding="utf-8", errors="replace", buffering=1)
