"""A test of the ranks' communication as text: who reaches whom, and how fast all-reduces are."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headfirst.control.deployment.verbs.comm import Comm, Run, Way

GBIT = 1e9 / 8  # bytes a second


def print_comm(found: Comm, console: Console) -> None:
    """The ports, a table for each back-end, NCCL's way, and the findings with what to do about them."""
    _ports(found, console)
    for run in found.runs:
        _run(run, found, console)
    for host, way in found.nccl.items():
        console.print(f"  {escape(f'{host}: {_way(way)}')}")
    for finding in found.findings:
        colour = "red" if finding.severity == "error" else "yellow"
        console.print(f"[{colour}]{escape(finding.severity)}:[/] {escape(f'{finding.host}: {finding.what}')}")
        if finding.why:
            console.print(f"  {escape(finding.why)}")
        console.print(f"  → {escape(finding.fix)}")
    if not found.findings:
        console.print("[bold green]The ranks reach each other, and their sums are right.[/]")


def _ports(found: Comm, console: Console) -> None:
    met = sum(one.ok for one in found.pairs)
    ports = sorted({one.port for one in found.pairs if not one.rendezvous})
    rendezvous = {one.port for one in found.pairs if one.rendezvous}
    listed = ", ".join([*(f"{port} (rendezvous)" for port in rendezvous), *map(str, ports)])
    held = "; a service holds the rendezvous port, and answers" if found.rendezvous_held else ""
    if found.pairs:
        console.print(
            f"{met} of {len(found.pairs)} connections made, in both directions, to ports {listed}{held}"
        )


def _run(run: Run, found: Comm, console: Console) -> None:
    link = f", the slowest link has {run.link_gbit:.0f} Gbit/s" if run.link_gbit else ""
    console.print(
        f"[bold]{escape(run.backend)}[/] all-reduce, {run.ranks} ranks, torch {escape(found.torch)}{link}"
    )
    table = Table("size", "time", "algorithm Gbit/s", "bus Gbit/s", "sums", box=None)
    for column in table.columns[:4]:
        column.justify = "right"
    for row in run.rows:
        table.add_row(
            f"{_size(row.bytes)}{', CUDA graph' if row.graph else ''}",
            _time(row.seconds),
            f"{row.algbw / GBIT:.3f}",
            f"{row.busbw / GBIT:.3f}",
            f"{row.wrong} wrong" if row.wrong else "right",
        )
    console.print(table)
    if run.stopped:
        console.print(f"  stopped at this size: {escape(run.stopped)}")


def _way(way: Way) -> str:
    devices = f" ({', '.join(way.devices)})" if way.devices else ""
    channels = []
    if way.rdma:
        channels.append(f"{way.rdma} channels over RDMA, {way.direct} of them from GPU memory (GDRDMA)")
    if way.socket:
        channels.append(f"{way.socket} channels over TCP (NET/Socket)")
    if way.inside:
        channels.append(f"{way.inside} inside the host")
    said = "; ".join(channels) or "no channels in its log"
    return f"NCCL {way.version}, network {way.network or 'not reported'}{devices}: {said}"


def _size(size: int) -> str:
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 2**power:
            return f"{size >> power} {unit}"
    return f"{size} B"


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds * 1e6:.0f} µs"
