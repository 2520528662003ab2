"""The models that GPUs can serve, as a person reads them."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from headfirst.cli.shown.plan import about
from headfirst.plan.models import Models, Offer
from headfirst.terminal import Terminal


def print_models(found: Models) -> None:
    """Print one row a model, the lines of the first one, and what cannot be served."""
    console = Terminal(highlight=False)
    console.print(
        f"{found.nodes} node(s) × {found.gpus_per_node} {escape(found.gpu)}, "
        f"{found.engine} {found.engine_version}"
    )
    if found.offers:
        console.print(_table(found.offers))
        first = found.offers[0]
        console.print(f"\nTo serve {escape(first.model)}, write under \\[all:vars]:")
        for line in first.lines:
            console.print(f"  {escape(line)}", soft_wrap=True)
        console.print("The lines of another model: deploy models INVENTORY --model ID")
    else:
        console.print("No model of the catalogue can be served there.")
    for refusal in found.refused:
        console.print(f"Not {escape(refusal.model)}: {escape(refusal.reason)}", soft_wrap=True)


def _table(offers: list[Offer]) -> Table:
    tasks = {offer.task for offer in offers} != {"chat"}
    titles = ["model", *(["task"] if tasks else []), "precision", "layout", "nodes"]
    table = Table(*titles, "replicas", "KV tokens", "weights", box=None)
    table.columns[0].overflow = "fold"
    for column in table.columns[-4:]:
        column.justify = "right"
    for offer in offers:
        layout = f"TP {offer.tensor_parallel}"
        if offer.pipeline_parallel > 1:
            layout += f" × PP {offer.pipeline_parallel}"
        table.add_row(
            escape(offer.model),
            *([offer.task] if tasks else []),
            "→".join(dict.fromkeys((offer.checkpoint_dtype.upper(), offer.dtype.upper()))),
            layout,
            str(offer.nodes_per_replica),
            str(offer.replicas),
            f"{offer.kv_tokens:,}",
            about(offer.weights_seconds),
        )
    return table
