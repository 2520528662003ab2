"""`deploy test --accuracy` on a terminal: progress, the score of a run, and what differs from another one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from headfirst.control.accuracy.comparison import Comparison
from headfirst.control.accuracy.result import Accuracy, Endpoint, ExamAnswer, differences
from headfirst.control.deployment.measuring.accuracy import ExamOutcome, ExamWatcher
from headfirst.control.run.amounts import duration

_MOST_PLACES = 5
_MOST_REASONS = 3


@contextmanager
def watcher(console: Console, *, as_json: bool) -> Iterator[ExamWatcher]:
    """What shows the run while it lasts: nothing with `as_json`."""
    if as_json:
        yield ExamWatcher()
        return
    with console.status("Connecting …") as status:
        yield _ExamProgress(console, status)


class _ExamProgress(ExamWatcher):
    def __init__(self, console: Console, status: Status) -> None:
        self._console = console
        self._status = status
        self._begin = 0.0
        self._questions = self._done = self._continued = self._failed = 0

    def note(self, text: str) -> None:
        """A line above the progress."""
        self._console.print(escape(text), style="dim")

    def started(self, questions: int, answered: int) -> None:
        """How many there are."""
        self._begin = time.monotonic()
        self._questions, self._done, self._continued, self._failed = questions, answered, answered, 0
        if answered:
            self.note(f"An earlier run has answered {answered:,} of {questions:,} questions.")
        self._status.update(f"{questions - answered:,} questions …")

    def answered(self, answer: ExamAnswer) -> None:
        """How many are done, and how long the rest takes at this pace."""
        self._done += 1
        self._failed += answer.error is not None
        pace = (time.monotonic() - self._begin) / (self._done - self._continued)
        rest = duration(pace * (self._questions - self._done))
        failed = f", {self._failed:,} failed" if self._failed else ""
        self._status.update(f"{self._done:,} of {self._questions:,} questions{failed}, about {rest} left")


def print_outcome(
    outcome: ExamOutcome, baseline: Accuracy | None, compared: Comparison | None, console: Console
) -> None:
    """The score, what lowers it besides the model, and the comparison."""
    result = outcome.result
    score, setup = result.score, result.setup
    console.print()
    console.print(f"[bold]{escape(_title(result))}[/]")
    console.print(
        f"  Right    {_percent(score.share)}: {score.right:,} of {score.answered:,} answers "
        f"(95 %: {_percent(score.low)} to {_percent(score.high)})"
    )
    if score.cut:
        console.print(
            f"  Cut      {score.cut:,} answers ended at {setup.max_tokens:,} tokens: give --max-tokens more"
        )
    if score.failed:
        console.print(
            f"  [red]Failed[/]   {score.failed:,} questions have no answer; the same command with "
            f"-o {escape(str(outcome.folder))} asks them again"
        )
        reasons = dict.fromkeys(answer.error for answer in result.answers if answer.error)
        for reason in list(reasons)[:_MOST_REASONS]:
            console.print(f"           {escape(reason)}")
    if baseline and compared:
        _print_comparison(baseline, result, compared, console)
    console.print(f"  Run      {escape(str(outcome.folder))}")


def _print_comparison(old: Accuracy, new: Accuracy, compared: Comparison, console: Console) -> None:
    total = compared.questions
    console.print(f"  Against  {escape(_title(old))}")
    console.print(
        f"           {_percent(compared.old_right / total)} → {_percent(compared.new_right / total)} "
        f"on {total:,} common questions: {_points(compared.difference)} "
        f"(95 %: {_points(compared.low)} to {_points(compared.high)})"
    )
    console.print(
        f"           {len(compared.lost):,} right answers lost, {len(compared.gained):,} gained "
        f"(p = {compared.p:.2g}); {compared.equal:,} answers are equal word for word"
    )
    for title, places in (("lost", compared.lost), ("gained", compared.gained)):
        if places:
            more = f" and {len(places) - _MOST_PLACES:,} more" if len(places) > _MOST_PLACES else ""
            console.print(f"           {title}: {escape(', '.join(places[:_MOST_PLACES]))}{more}")
    for name, (before, now) in differences(old.setup, new.setup).items():
        console.print(f"           [yellow]not equal[/]: {name}: {escape(str(before))} → {escape(str(now))}")
    console.print(f"  Verdict  {_verdict(compared)}")


def _verdict(compared: Comparison) -> str:
    if compared.verdict == "worse":
        return "[bold red]Worse.[/] Chance does not explain the lost answers."
    if compared.verdict == "better":
        return "[bold green]Better.[/] Chance does not explain the gained answers."
    worst = max(0.0, -compared.low) * 100
    return f"[bold green]No difference was found:[/] at most {worst:.1f} points worse, with 95 % confidence."


def _title(result: Accuracy) -> str:
    subject = result.setup.subject
    if isinstance(subject, Endpoint):
        service = f"{subject.model} at {subject.url}"
    else:
        engine = f"{subject.engine} {subject.engine_version}"
        service = f"{subject.service} of {subject.cluster}: {subject.model}, {engine}"
    date = result.date[:16].replace("T", " ")
    return f"{service}; {result.setup.data}, {date}"


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _points(share: float) -> str:
    return f"{share * 100:+.1f} points"
