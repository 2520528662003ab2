"""`deploy test --accuracy`: what verb `test` of smoke.py calls for it."""

from __future__ import annotations

from pathlib import Path

import typer

from headfirst.common.errors import HeadfirstError
from headfirst.control.accuracy import endpoint
from headfirst.control.accuracy import questions as data
from headfirst.control.accuracy.comparison import require_common, summary
from headfirst.control.accuracy.endpoint import Address
from headfirst.control.accuracy.result import read
from headfirst.control.cli.shown import accuracy as shown
from headfirst.control.cli.verb import OutputFormat, exclude
from headfirst.control.deployment.measuring.accuracy import Exam, is_run, measure
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal


def compared(compare: str | None, model: str | None, key_file: Path | None) -> Path | Address | None:
    """What `--compare` names: a path, or a service with what the options beside it set."""
    if compare and endpoint.is_url(compare):
        return endpoint.address(compare, model, key_file)
    exclude({"--compare-model": model, "--compare-key-file": key_file}, "{} needs --compare URL")
    return Path(compare) if compare else None


def measure_accuracy(
    run: RunOptions,
    output: OutputFormat,
    path: Path,
    compare: Path | Address | None,
    folder: Path | None,
    *,
    questions: int | None,
    max_tokens: int | None,
    concurrency: int,
    timeout_s: float,
) -> None:
    """Ask the service, and what is compared with it where that is no earlier run; print the result."""
    recorded = read(compare) if isinstance(compare, Path) and is_run(compare) else None
    if recorded:
        max_tokens = max_tokens or recorded.setup.max_tokens
    exam = Exam(path, data.read(path, questions), max_tokens, concurrency, timeout_s)
    if recorded:
        require_common(recorded, (question.id for question in exam.questions))
    against = None if recorded else RunOptions([compare]) if isinstance(compare, Path) else compare
    console = Terminal(highlight=False, soft_wrap=True)
    with shown.watcher(console, as_json=output.as_json) as watcher:
        outcome, asked = measure(run, exam, folder, watcher, against)
    baseline = recorded or asked
    printed = summary(outcome.folder, outcome.result, baseline)
    if output.as_json:
        typer.echo(printed.model_dump_json(indent=2, ensure_ascii=True))
    else:
        shown.print_outcome(outcome, baseline, printed.compared, console)
    if printed.score.failed or (printed.compared and printed.compared.verdict == "worse"):
        raise typer.Exit(HeadfirstError.exit_code)
