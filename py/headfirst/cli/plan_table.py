"""A plan as a person reads it."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headfirst.plan.types import Fit, Node, Plan, WeightsTime
from headfirst.terminal import Terminal

GB, GIB = 10**9, 2**30


def print_plan(plan: Plan) -> None:
    """Print ranks, weights, memory fit, ports and the docker run line of every node."""
    console = Terminal(highlight=False)
    console.print(
        f"[bold]{escape(plan.model)}[/] as {escape(plan.served_model_name)}, "
        f"{plan.engine} {plan.engine_version}"
    )
    console.print(
        f"TP {plan.tensor_parallel} × PP {plan.pipeline_parallel} = {plan.world_size} ranks of "
        f"{'a GPU' if plan.device == 'cuda' else 'CPU cores'} on {len(plan.nodes)} node(s)"
    )
    console.print(f"Described by {escape(plan.model_described_by)}", soft_wrap=True)
    weights = plan.weights
    console.print(
        f"Weights: {weights.source}, {weights.source_bytes / GB:,.1f} GB, to {escape(weights.directory)}"
        + (f", at revision {escape(weights.revision)}" if weights.revision else ""),
        soft_wrap=True,
    )
    to_bf16 = (
        f"FP8 → BF16: yes, {weights.served_bytes / GB:,.1f} GB" if plan.convert_to_bf16 else "FP8 → BF16: no"
    )
    console.print(f"{to_bf16}. {escape(plan.convert_reason)}", soft_wrap=True)
    console.print(
        f"Remote code: {'on' if plan.trust_remote_code else 'off'}. {escape(plan.trust_reason)}",
        soft_wrap=True,
    )
    _print_time(console, weights.time)
    _print_fit(console, plan.fit)
    table = Table("rank", "host", "address", "ports", box=None, title="Nodes", title_justify="left")
    for node in plan.nodes:
        ports = f"{plan.engine_port} API, {plan.dist_port} rendezvous" if node.rank == 0 else ""
        table.add_row(str(node.rank), node.host, node.address, ports)
    table.add_row("–", plan.webui.host, plan.webui.address, f"{plan.webui.port} chat page")
    console.print(table)
    _print_network(console, plan.nodes)
    for node in plan.nodes:
        _print_run(console, f"rank {node.rank} on {node.host}", node.docker_run, node.container.image)
    _print_run(console, f"chat page on {plan.webui.host}", plan.webui.docker_run, plan.webui.container.image)


def _print_network(console: Console, nodes: list[Node]) -> None:
    """What was chosen for the ranks' network and why; hosts are named where they differ."""
    told: dict[str, list[str]] = {}
    for node in nodes:
        for reason in node.network.reasons:
            told.setdefault(reason, []).append(node.host)
    for reason, hosts in told.items():
        where = "" if len(hosts) == len(nodes) else f"{', '.join(hosts)}: "
        console.print(f"  {escape(where + reason)}", soft_wrap=True)


def _print_time(console: Console, time: WeightsTime) -> None:
    alone = f" One step and one node at a time: {_about(time.documented_seconds)}."
    console.print(
        f"Weights in about {_about(time.seconds)}; bottleneck is {escape(time.reason)}."
        + (alone if time.documented_seconds > time.seconds else ""),
        soft_wrap=True,
    )
    known: dict[str, list[str]] = {}
    for rate in time.rates:
        known.setdefault(rate.known, []).append(f"{rate.what} {rate.text}")
    listed = "; ".join(f"{how}: {', '.join(rates)}" for how, rates in known.items())
    better = "; set download_rate, network_rate, disk_rate, or use --probe" if "assumed" in known else ""
    console.print(f"  Rates {escape(listed)}{better}", soft_wrap=True)


def _about(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _print_fit(console: Console, fit: Fit) -> None:
    colour = {True: "green", False: "red", None: "yellow"}[fit.fits]
    console.print(f"Memory: [{colour}]{escape(fit.reason)}[/]", soft_wrap=True)
    table = Table("per GPU", "GiB", box=None)
    table.columns[1].justify = "right"
    rows = {"memory": fit.gpu_memory_bytes, "− weights": fit.weight_bytes_per_rank}
    rows |= {f"− {term.replace('_', ' ')}": value for term, value in fit.terms.items()}
    for name, value in (rows | {"= KV cache": fit.kv_pool_bytes}).items():
        table.add_row(name, "" if value is None else f"{value / GIB:,.2f}")
    if fit.terms:
        console.print(table)
    console.print(
        f"KV cache: {fit.kv_bytes_per_token:,} bytes a token"
        + (f", {fit.kv_tokens:,} tokens" if fit.kv_tokens else "")
    )


def _print_run(console: Console, title: str, line: list[str], image: str) -> None:
    """One option a line, ready to be pasted into a shell."""
    console.print(f"\n[bold]# {escape(title)}[/]")
    lines: list[str] = []
    after_image = False
    for word in line:
        starts = word.startswith("--") or word == image or (after_image and lines[-1].strip() == image)
        if starts or not lines:
            lines.append(f"  {shlex.quote(word)}" if lines else word)
        else:
            lines[-1] += f" {shlex.quote(word)}"
        after_image = after_image or word == image
    console.print(escape(" \\\n".join(lines)), soft_wrap=True)
