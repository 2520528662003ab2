"""The models that GPUs can serve, as a person reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.markup import escape

from headfirst.control.cli.shown.plan import about, counted
from headfirst.control.terminal import Terminal, wrapped
from headfirst.decide.plan.sizing.models import ORDER, Models, Offer, Refusal, group_of

_NUMBERS = ("size", "nodes", "replicas", "KV tokens", "weights")


def print_models(survey: Models) -> None:
    """Print one row a model, what cannot be served, and last the lines of the first model."""
    console = Terminal(highlight=False)
    console.print(
        f"{counted(survey.nodes, 'node')} × {survey.gpus_per_node} {escape(survey.gpu)}, "
        f"{survey.engine} {survey.engine_version}"
    )
    if survey.offers:
        for line in _table(survey.offers, console.width):
            console.print(escape(line), soft_wrap=True)
        console.print()
        _wrapped(console, f"The order: {ORDER}.")
    else:
        console.print("No model of the catalogue can be served there.")
    if survey.refused:
        console.print(f"\n{len(survey.refused)} models are not served, by reason:")
    for reason, models in _by_reason(survey.refused).items():
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


def _table(offers: list[Offer], width: int) -> Iterator[str]:
    """Lines of a row a model, task by task; where they do not fit, the id has a line of its own, so that it
    stays whole."""
    titles = ("model", "precision", "size", "released", "layout", *_NUMBERS[1:])
    rows = [titles, *((_name(offer), *_cells(offer)) for offer in offers)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    several = sum(widths) + 2 * (len(widths) - 1) > width
    group = ""
    for row, offer in zip(rows, [None, *offers], strict=True):
        if offer and (tasks := group_of(offer.task)) != group:
            group = tasks
            yield f"{group}:"
        cells = [
            cell.rjust(size) if title in _NUMBERS else cell.ljust(size)
            for title, cell, size in zip(titles, row, widths, strict=True)
        ]
        if several:
            yield row[0]
            yield " " + " ".join(cells[1:]).rstrip()
        else:
            yield "  ".join(cells).rstrip()


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
