"""The models that GPUs can serve, as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator

from rich.markup import escape

from headfirst.control.cli.shown.plan import about
from headfirst.control.terminal import Terminal
from headfirst.decide.plan.sizing.models import Models, Offer

_NUMBERS = ("nodes", "replicas", "KV tokens", "weights")
_GAP = "  "


def print_models(survey: Models) -> None:
    """Print one row a model, the lines of the first one, and what cannot be served."""
    console = Terminal(highlight=False)
    console.print(
        f"{survey.nodes} node(s) × {survey.gpus_per_node} {escape(survey.gpu)}, "
        f"{survey.engine} {survey.engine_version}"
    )
    if survey.offers:
        for line in _table(survey.offers, console.width):
            console.print(escape(line), soft_wrap=True)
        first = survey.offers[0]
        console.print(f"\nTo serve {escape(first.model)}, write under \\[all:vars]:")
        for line in first.lines:
            console.print(f"  {escape(line)}", soft_wrap=True)
        console.print("The lines of another model: deploy models INVENTORY --model ID")
    else:
        console.print("No model of the catalogue can be served there.")
    for refusal in survey.refused:
        console.print(f"Not {escape(refusal.model)}: {escape(refusal.reason)}", soft_wrap=True)


def _table(offers: list[Offer], width: int) -> Iterator[str]:
    """Lines of a row a model; where they do not fit, the id has a line of its own, so that it stays whole."""
    tasks = {offer.task for offer in offers} != {"chat"}
    titles = ("model", *(["task"] if tasks else []), "precision", "layout", *_NUMBERS)
    rows = [titles, *((offer.model, *([offer.task] if tasks else []), *_cells(offer)) for offer in offers)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    several = sum(widths) + len(_GAP) * (len(widths) - 1) > width
    for row in rows:
        cells = [
            cell.rjust(size) if title in _NUMBERS else cell.ljust(size)
            for title, cell, size in zip(titles, row, widths, strict=True)
        ]
        if several:
            yield row[0]
            cells[0] = ""
        yield _GAP.join(cells).rstrip()


def _cells(offer: Offer) -> tuple[str, ...]:
    layout = f"TP {offer.tensor_parallel}"
    if offer.pipeline_parallel > 1:
        layout += f" × PP {offer.pipeline_parallel}"
    numbers = (str(offer.nodes_per_replica), str(offer.replicas), f"{offer.kv_tokens:,}")
    return offer.precision, layout, *numbers, about(offer.weights_seconds)
