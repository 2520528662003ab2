"""`deploy tune` on a terminal: what it will do, its progress, and its verdicts."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headfirst.control.bench.trial import Judged
from headfirst.control.cli.shown.bench import BenchProgress
from headfirst.control.deployment.measuring.candidates import TuneCandidate
from headfirst.control.deployment.measuring.tune import Intended, Tuned, TuneWatcher, Wishes
from headfirst.control.run.amounts import duration

_COLOURS = {"better": "green", "worse": "yellow", "no difference": "dim", "failed": "red"}


def print_intended(plan: Intended, wishes: Wishes, console: Console) -> None:
    """The candidates, the restarts and how long they take."""
    console.print(f"[bold]{len(plan.candidates)} candidates[/] for {escape(str(plan.service))}:")
    for candidate in plan.candidates:
        console.print(f"  {escape(str(candidate))}\n    [dim]{escape(candidate.why)}[/]")
    for arguments, why in plan.left_out.items():
        console.print(f"  [dim]left out: {escape(arguments)}: {escape(why)}[/]")
    console.print("What `diagnose --tuning` advises under the load is tried too.")
    load = wishes.workload.loads[0]
    number = wishes.workload.number or load.usual_requests()
    amount = f"{wishes.workload.seconds:g} s" if wishes.workload.seconds else f"{number} requests"
    console.print(
        f"Each: {wishes.repeats} measurements of {amount} at {load}. "
        "The inventory's arguments are measured before and after."
    )
    if plan.start_seconds is None:
        takes = "The duration of a start is unknown."
    else:
        takes = (
            f"The last start took {duration(plan.start_seconds)}: about "
            f"{duration(plan.start_seconds * plan.restarts)} of starts, and the measurements."
        )
    console.print(f"[bold]{plan.restarts} restarts[/], during which the service does not answer. {takes}")


class TuneProgress(BenchProgress, TuneWatcher):
    """Progress and verdicts on a console."""

    def trying(self, candidate: TuneCandidate | None, number: int, total: int) -> None:
        """A heading."""
        name = f"{number}/{total} {candidate}" if candidate else "The inventory's arguments"
        self.console.print(f"[bold]{escape(name)}[/]")

    def judged(self, candidate: TuneCandidate, judgement: Judged) -> None:
        """The verdict so far."""
        self.console.print(f"  {_verdict(judgement)}")


def print_tuned(tuned: Tuned, console: Console) -> None:
    """A row for each candidate, and the best."""
    table = Table("arguments", "verdict", box=None, header_style="bold")
    table.add_column("ratio", justify="right")
    table.add_column("noise", justify="right")
    for trial in tuned.trials:
        ratio, noise = trial.judged.ratio, trial.judged.noise
        table.add_row(
            escape(str(trial.candidate)),
            _verdict(trial.judged),
            "–" if ratio is None else f"× {ratio:.3f}",
            "–" if noise is None else f"± {noise:.3f}",
        )
    console.print()
    console.print(table)
    console.print(f"[dim]Ratio of {tuned.goal} to that of the inventory's arguments, at {tuned.load}.[/]")
    if tuned.best is None:
        console.print("No candidate is better than the inventory's arguments beyond the noise.")
        return
    best = tuned.trials[tuned.best]
    console.print(f"[bold green]Best: {escape(str(best.candidate))}[/] × {best.judged.ratio:.3f}")
    console.print(f"  because {escape(best.candidate.why)} ({escape(best.candidate.source)})")


def _verdict(judgement: Judged) -> str:
    why = f": {escape(judgement.why)}" if judgement.why else ""
    return f"[{_COLOURS[judgement.verdict]}]{judgement.verdict}[/]{why}"
