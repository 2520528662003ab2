"""`deploy test`: smoke tests of the running service, or with --accuracy the share of right answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from headfirst.common.errors import HeadfirstError, InputError
from headfirst.control.cli.verb import OutputFormat, exclude, verb
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.run.amounts import duration
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from headfirst.control.deployment.verbs.smoke import SmokeWatcher
    from headfirst.control.smoke.verdict import Case, CaseResult, SmokeReport

_MARKS = {
    "passed": "[green]✓[/]",
    "failed": "[red]✗[/]",
    "not called": "[yellow]○[/]",
    "not supported": "[yellow]–[/]",
}


@verb(
    "deploy test cluster.ini --accuracy gsm8k.jsonl --compare runs/before",
    *("service", "json"),
    unless="list_",
)
def test(
    run: RunOptions,
    output: OutputFormat,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="PATTERN", help="Only these cases, as 'chat.*'."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the cases and send no request.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1, help="Time limit of one request.")
    ] = 300.0,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write the results as JUnit's XML.")
    ] = None,
    accuracy: Annotated[
        Path | None,
        typer.Option(
            "--accuracy",
            metavar="DATA",
            help="Ask the questions of this JSONL file or folder instead, and count right answers.",
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="RUN|INVENTORY|URL",
            help="With --accuracy: an earlier run (its folder), or an inventory or the address of a service "
            "that is asked too.",
        ),
    ] = None,
    compare_model: Annotated[
        str | None,
        typer.Option(
            "--compare-model",
            metavar="NAME",
            help="The model of --compare URL. Default: the only one that it serves.",
        ),
    ] = None,
    compare_key_file: Annotated[
        Path | None,
        typer.Option(
            "--compare-key-file",
            metavar="FILE",
            help="The API key of --compare URL. Default: the environment's HEADFIRST_COMPARE_KEY.",
        ),
    ] = None,
    questions: Annotated[
        int | None,
        typer.Option("--questions", metavar="N", min=1, help="With --accuracy: ask N of the questions only."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            metavar="N",
            min=1,
            help="With --accuracy: limit of an answer. Default: that of the earlier run, or 2048.",
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            metavar="N",
            min=1,
            max=1024,
            help="With --accuracy: concurrent requests. Default: 8.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="DIR", help="With --accuracy: write the run there, or continue one."
        ),
    ] = None,
) -> None:
    """Test the running service through the OpenAI client, and print what passed, failed, was not called or is
    not supported.

    With --accuracy: ask questions with known answers, and compare with another service or an earlier run.
    Exit code 0: nothing failed; 1: a case or a request failed, or answers became worse; 3: the service is
    not ready.
    """
    from headfirst.control.smoke import runner

    if accuracy:
        from headfirst.control.cli.accuracy import compared, measure_accuracy

        exclude({"--only": only, "--list": list_, "--junit": junit}, "--accuracy excludes {}")
        measure_accuracy(
            run,
            output,
            accuracy,
            compared(compare, compare_model, compare_key_file),
            folder,
            questions=questions,
            max_tokens=max_tokens,
            concurrency=concurrency or 8,
            timeout_s=timeout,
        )
        return
    of_url = {"--compare-model": compare_model, "--compare-key-file": compare_key_file}
    options = {"--compare": compare, **of_url, "--questions": questions, "--max-tokens": max_tokens}
    exclude({**options, "--concurrency": concurrency, "--output": folder}, "{} needs --accuracy DATA")
    cases = runner.chosen(only or [])
    console = Terminal(highlight=False, soft_wrap=True)
    if list_:
        exclude({"--service": run.service, "--junit": junit}, "--list excludes {}")
        print_cases(cases, console, as_json=output.as_json)
        return
    from headfirst.control.deployment.verbs import smoke
    from headfirst.control.smoke.verdict import write_junit

    if junit and not junit.absolute().parent.is_dir():
        raise InputError(f"the folder of {junit} does not exist", where="--junit")
    with watcher(console, cases, as_json=output.as_json) as watching:
        report = smoke.run(run, cases, watching, timeout_s=timeout)
    if junit:
        write_junit(report, junit)
    if output.as_json:
        typer.echo(report.model_dump_json(indent=2, ensure_ascii=True))
    else:
        print_summary(report, console)
    if not report.passed:
        raise typer.Exit(HeadfirstError.exit_code)


def print_cases(cases: Sequence[Case], console: Console, *, as_json: bool) -> None:
    """Names and titles."""
    if as_json:
        typer.echo(json.dumps([{"case": case.name, "title": case.title} for case in cases], indent=2))
        return
    table = Table("case", "what must be so", box=None)
    for case in cases:
        table.add_row(case.name, escape(case.title))
    console.print(table)


@contextmanager
def watcher(console: Console, cases: Sequence[Case], *, as_json: bool) -> Iterator[SmokeWatcher]:
    """What shows the run while it lasts: nothing with `as_json`."""
    console = Terminal(quiet=True, force_terminal=False) if as_json else console
    with console.status("Connecting …") as status:
        yield _Lines(console, status, cases)


class _Lines:
    def __init__(self, console: Console, status: Status, cases: Sequence[Case]) -> None:
        self._console = console
        self._status = status
        self._width = max(len(case.name) for case in cases)
        self._shown = ""
        self._numbers = {case.name: f"{number}/{len(cases)}" for number, case in enumerate(cases, 1)}

    def started(self, case: Case) -> None:
        """The present case beside the spinner; on no terminal this prints nothing."""
        self._shown = f"{self._numbers[case.name]} {escape(case.title)} …"
        self._status.update(self._shown)

    def time_left(self, seconds: float) -> None:
        """The time left beside the case."""
        self._status.update(f"{self._shown} about {duration(seconds)} left")

    def ended(self, result: CaseResult) -> None:
        """Its line."""
        verdict = "" if result.verdict == "passed" else f"{result.verdict}: "
        self._console.print(
            f"{_MARKS[result.verdict]} {result.case:{self._width}} {result.seconds:6.1f} s  "
            f"{verdict}{escape(_why(result))}"
        )


def _why(result: CaseResult) -> str:
    return f"{result.why}. {result.hint}" if result.hint else result.why


def print_summary(report: SmokeReport, console: Console) -> None:
    """What failed once more, what the service can do, and counts."""
    from headfirst.decide.plan.capabilities import sentence

    counts = report.counts
    console.print()
    for result in report.results:
        if result.verdict == "failed":
            console.print(f"[red]failed[/] {result.case}: {escape(_why(result))}")
    parts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in _MARKS)
    if report.capabilities:
        console.print(escape(sentence(report.capabilities)))
    mark = "[bold green]Passed.[/]" if report.passed else "[bold red]Failed.[/]"
    console.print(f"{mark} {escape(report.service)}: {parts} in {duration(report.seconds)}.")
