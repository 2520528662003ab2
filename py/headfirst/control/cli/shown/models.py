"""The models that GPUs can serve, as a person reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from rich.markup import escape

from headfirst.control.cli.shown.plan import about, counted
from headfirst.control.terminal import Terminal, wrapped
from headfirst.decide.plan.sizing.models import ORDER, Models, Offer, Refusal, group_of

SHOWN = 6  # of a task
_NUMBERS = ("size", "nodes", "replicas", "KV tokens", "weights")


def print_models(survey: Models, *, whole: bool) -> None:
    """Print one row a model, and last the lines of the first model. Without `whole` the first of each task;
    with it what cannot be served, too.
    """
    console = Terminal(highlight=False)
    console.print(
        f"{counted(survey.nodes, 'node')} × {survey.gpus_per_node} {escape(survey.gpu)}, "
        f"{survey.engine} {survey.engine_version}"
    )
    if survey.offers:
        for line in _table(survey.offers, console.width, len(survey.offers) if whole else SHOWN):
            console.print(escape(line), soft_wrap=True)
        console.print()
        _wrapped(console, f"The order: {ORDER}.")
    else:
        console.print("No model of the catalogue can be served there.")
    if survey.refused:
        reasons = ", by reason:" if whole else ": --all has the reasons."
        console.print(f"\n{len(survey.refused)} models are not served{reasons}")
    for reason, models in _by_reason(survey.refused if whole else []).items():
        _wrapped(console, f"{reason.rstrip('.')}: {', '.join(models)}")
    if survey.offers:
        _print_first(console, survey.offers[0])


def _print_first(console: Terminal, offer: Offer) -> None:
    console.print()
    _wrapped(console, f"To serve {offer.model}, write under [all:vars]:")
    for line in offer.lines:
        console.print(f"  {escape(line)}", soft_wrap=True)
    console.print("The lines of another model: deploy models INVENTORY --model ID")


def _by_reason(refused: list[Refusal]) -> dict[str, list[str]]:
    """Ids by the reason; reasons that differ in a number are in its order."""
    ids: dict[str, list[str]] = {}
    for refusal in refused:
        ids.setdefault(refusal.reason, []).append(refusal.model)
    return {reason: ids[reason] for reason in sorted(ids, key=_with_numbers)}


def _with_numbers(text: str) -> list[str | int]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def _wrapped(console: Terminal, text: str) -> None:
    """Lines of the terminal's width, in which an id stays whole."""
    console.print(escape(wrapped(text, console.width)), soft_wrap=True)


def _table(offers: list[Offer], width: int, most: int) -> Iterator[str]:
    """Lines of a row a model, task by task, and of each task `most`; where they do not fit, the id has a line
    of its own, so that it stays whole."""
    tasks = [(group, list(each)) for group, each in groupby(offers, lambda offer: group_of(offer.task))]
    titles = ("model", "precision", "size", "released", "layout", *_NUMBERS[1:])
    groups = [(group, [(_name(each), *_cells(each)) for each in of[:most]], len(of)) for group, of in tasks]
    rows = [titles, *(row for _, shown, _ in groups for row in shown)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    several = sum(widths) + 2 * (len(widths) - 1) > width

    def lines(row: tuple[str, ...]) -> list[str]:
        cells = [
            cell.rjust(size) if title in _NUMBERS else cell.ljust(size)
            for title, cell, size in zip(titles, row, widths, strict=True)
        ]
        if several:
            return [row[0], " " + " ".join(cells[1:]).rstrip()]
        return ["  ".join(cells).rstrip()]

    yield from lines(titles)
    for group, shown, count in groups:
        yield f"{group}:"
        for row in shown:
            yield from lines(row)
        if count > most:
            yield f"{count - most} more for {group}: deploy models INVENTORY --all"


def _name(offer: Offer) -> str:
    return f"{offer.model} (images)" if offer.task == "vision" else offer.model


def _cells(offer: Offer) -> tuple[str, ...]:
    layout = f"TP {offer.tensor_parallel}"
    if offer.pipeline_parallel > 1:
        layout += f" × PP {offer.pipeline_parallel}"
    return (
        offer.precision,
        f"{offer.parameters / 1e9:,.{1 if offer.parameters < 100e9 else 0}f}B",
        offer.released or "?",
        layout,
        str(offer.nodes_per_replica),
        str(offer.replicas),
        f"{offer.kv_tokens:,}",
        about(offer.weights_seconds),
    )
