"""Verbs that ask what runs: `deploy status`, `top`, `logs`, `events` and `chat`."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.cli.verb import OutputFormat, verb
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.run.amounts import duration
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from headfirst.control.deployment.verbs.events import ReplicaEvent
    from headfirst.control.live import status_types as types
    from headfirst.control.live.load import EngineLoad


@verb("deploy status cluster.ini --json", "service", "json")
def status(
    run: RunOptions,
    output: OutputFormat,
    arguments: Annotated[
        bool, typer.Option("--arguments", help="Show the command line of each rank's container.")
    ] = False,
) -> None:
    """Show every rank, engine and router and the chat page. Exit code 3 when something is not ready."""
    from headfirst.control.deployment.running.recorded import keep_images
    from headfirst.control.deployment.verbs import service
    from headfirst.control.inventory.inventory import load

    cluster = load(run.inventories, run.extra_vars)
    cluster_status = service.status(cluster, run.service)
    keep_images(cluster, cluster_status)
    if output.as_json:
        typer.echo(cluster_status.model_dump_json(indent=2, ensure_ascii=True))
    else:
        print_status(cluster_status, str(run.inventories[0]), Terminal(highlight=False), arguments=arguments)
    if not cluster_status.ready:
        raise typer.Exit(NotReadyError.exit_code)


@verb("deploy top cluster.ini --interval 5", "service", "json")
def top(
    run: RunOptions,
    output: OutputFormat,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.5, help="Time between two updates.")
    ] = 2.0,
) -> None:
    """Watch all replicas, ranks, GPUs and requests. Keys: q quit, s sort, r reverse, f next service."""
    from headfirst.control.deployment.verbs.service import watch
    from headfirst.control.inventory.inventory import load

    cluster = load(run.inventories, run.extra_vars)
    if not (output.as_json or sys.stdout.isatty()):
        raise InputError("`deploy top` needs a terminal", hint="For a script: deploy top INVENTORY --json")
    from headfirst.control.cli.shown.top import Top
    from headfirst.control.live.watch import lines

    with watch(cluster, run.service) as source:
        if output.as_json:
            for line in lines(source.read, interval):
                typer.echo(line)
        else:
            Top(source.read, interval, title=cluster.name).run()


@verb("deploy logs cluster.ini --rank 1 --follow", "service")
def logs(
    run: RunOptions,
    rank: Annotated[str | None, typer.Option("--rank", metavar="RANK|HOST", help="Only this rank.")] = None,
    of: Annotated[
        Literal["router", "page", "proxy"] | None,
        typer.Option("--of", help="In place of the ranks: the routers, the chat page, or the proxy."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines as they arrive.")] = False,
    tail: Annotated[int | None, typer.Option("--tail", min=0, help="Last lines of each container.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="10m|TIME", help="Only lines after this.")
    ] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Show the time of each line.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Long lines whole, and the warnings of Python's imports.")
    ] = False,
) -> None:
    """Show the logs of all ranks, of one, or of the router, page or proxy."""
    from headfirst.control.deployment.verbs.service import logged, without_secrets
    from headfirst.control.inventory.inventory import load
    from headfirst.control.live.logs import parse_since, print_logs, shortened, stream_logs

    if rank and of:
        raise InputError("--rank and --of exclude each other", hint="Keep one of them.")
    cluster = load(run.inventories, run.extra_vars)
    lines = without_secrets(
        cluster,
        stream_logs(
            logged(cluster, run.service, rank, of),
            follow=follow,
            tail=tail,
            since=parse_since(since) if since else None,
        ),
    )
    print_logs(lines if full else shortened(lines), Terminal(), timestamps=timestamps)


@verb("deploy events cluster.ini --since 1d", "service", "json")
def events(
    run: RunOptions,
    output: OutputFormat,
    since: Annotated[
        str | None, typer.Option("--since", metavar="10m|TIME", help="Only events after this.")
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="Show the last lines of each rank that ended.")] = False,
) -> None:
    """Show when ranks ended, why, and what the supervisors did: all hosts in one order."""
    from headfirst.control.deployment.verbs.events import events
    from headfirst.control.inventory.inventory import load
    from headfirst.control.live.logs import parse_since
    from headfirst.control.live.supervision import HISTORY

    cluster = load(run.inventories, run.extra_vars)
    history = events(cluster, run.service, since=parse_since(since) if since else None)
    if output.as_json:
        typer.echo(history.model_dump_json(indent=2, ensure_ascii=True))
        return
    console = Terminal(highlight=False, soft_wrap=True)
    several = len(cluster.chosen(run.service)) > 1
    for event in history.events:
        _event(event, console, several=several, log=log)
    if not history.events:
        console.print("No events: no rank has ended since the supervisors started.")
    for host, count in history.damaged.items():
        lines = "1 line" if count == 1 else f"{count} lines"
        console.print(f"[yellow]{escape(host)}: {lines} of its history cannot be read: {HISTORY}[/]")
    for host, reason in history.silent.items():
        console.print(f"[yellow]{escape(host)} does not answer: {escape(reason)}[/]")


@verb("deploy chat cluster.ini 'What is tensor parallelism?'", "service")
def chat(
    run: RunOptions,
    prompt: Annotated[
        str | None, typer.Argument(help="One question. Without it, start a conversation.")
    ] = None,
    system: Annotated[str | None, typer.Option("--system", help="System prompt.")] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", metavar="NAME=VALUE", help="Of each request, such as temperature=0.3."),
    ] = None,
) -> None:
    """Send a question to the model, from this machine through SSH."""
    from headfirst.control.deployment.verbs.service import open_chat
    from headfirst.control.inventory.inventory import load
    from headfirst.control.live.chat import converse, parsed, print_answer

    cluster = load(run.inventories, run.extra_vars)
    console, parameters = Terminal(), parsed(parameter or [])
    with open_chat(cluster, system, run.service, parameters) as chat:
        if prompt is None:
            converse(chat, console)
        else:
            print_answer(chat, prompt, console)


def _event(event: ReplicaEvent, console: Terminal, *, several: bool, log: bool) -> None:
    name = f"{event.service}/{event.replica}  " if several else ""
    at = event.at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    console.print(f"{at}  {escape(event.host)}  {escape(name)}{escape(event.text)}")
    if event.cause:
        console.print(f"    {escape(event.cause.rstrip('.'))}. {escape(event.fix)}")
    for line in event.log if log else ():
        console.print(f"    | {escape(line)}")


def print_status(status: types.ClusterStatus, inventory: str, console: Console, *, arguments: bool) -> None:
    """A table of each replica's ranks, then a line for each router and the chat page."""
    from headfirst.decide.plan.capabilities import sentence

    for replica in status.replicas:
        _replica(replica, console, alone=len(status.replicas) == 1)
        if arguments:
            _arguments(replica, console)
    for service, capabilities in status.capabilities.items():
        name = f"{service}: " if len(status.capabilities) > 1 else ""
        console.print(escape(f"{name}{sentence(capabilities)}"), soft_wrap=True)
        if told := status.measured.get(service):
            console.print(escape(f"{name}{told.sentence}"), soft_wrap=True)
    for router in status.routers:
        workers = [_worker(worker) for worker in router.replicas]
        _line(console, f"router of {router.service}", router, ", ".join(workers) or router.state)
    if page := status.webui:
        _line(console, "chat page", page, page.state)
    if not all(replica.ready for replica in status.replicas):
        console.print(f"Why: deploy diagnose {escape(inventory)}", soft_wrap=True)


def _replica(replica: types.ReplicaStatus, console: Console, *, alone: bool) -> None:
    if not alone:
        role = f", {replica.role}" if replica.role else ""
        console.print(f"[bold]{escape(replica.service)}, replica {replica.index}{role}[/]")
    table = Table("rank", "host", "container", "since", "image", box=None)
    for rank in replica.ranks:
        state = f"{rank.state}: {rank.problem}" if rank.problem else rank.state
        table.add_row(
            str(rank.rank),
            rank.host,
            escape(state),
            escape((rank.started_at or "")[:19]),
            escape(rank.image or ""),
        )
    console.print(table)
    _line(console, "engine", replica.engine, ", ".join(replica.engine.models))
    if replica.supervisor:
        console.print(escape(_supervision(replica.supervisor)), soft_wrap=True)
    if replica.engine.ready:
        console.print(f"load    {_load(replica.engine.load)}", soft_wrap=True)


def _worker(worker: types.RoutedReplica) -> str:
    requests = "" if worker.requests is None else f", {worker.requests} requests"
    return f"{worker.url} {worker.state}{requests}"


def _supervision(supervision: types.Supervision) -> str:
    """The phase, since when, and how often and why the replica was started again."""
    since = "" if supervision.for_s is None else f" for {duration(supervision.for_s)}"
    parts = [supervision.phase.replace("_", " ") + since]
    parts += [supervision.text] if supervision.text else []
    if supervision.restarts is None:
        parts.append("? restarts")
    elif supervision.restarts:
        parts.append(f"{supervision.restarts} restarts, the last one: {supervision.last_reason}")
    return "supervisor  " + "; ".join(parts)


def _arguments(replica: types.ReplicaStatus, console: Console) -> None:
    for rank in replica.ranks:
        if rank.argv:
            console.print(f"rank {rank.rank}  {escape(shlex.join(rank.argv))}", soft_wrap=True)


def _line(
    console: Console, what: str, part: types.EngineStatus | types.RouterStatus | types.WebuiStatus, more: str
) -> None:
    mark = "[green]ready[/]" if part.ready else "[red]not ready[/]"
    console.print(f"{what}  {part.url}  {mark}  {escape(part.problem or more)}", soft_wrap=True)


def _load(load: EngineLoad | None) -> str:
    if load is None:
        return "unknown: the engine publishes no metrics"
    queued = "?" if load.queued is None else load.queued
    cache = "?" if load.cache_usage is None else f"{load.cache_usage:.0%}"
    return (
        f"{load.generated_tokens_per_s:.1f} tokens/s generated, "
        f"{load.prompt_tokens_per_s:.1f} tokens/s read, "
        f"{load.running} running, {queued} queued, KV cache {cache}"
    )
