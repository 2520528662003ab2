"""A plan as a person reads it: the verdict, what may go wrong, then each service and the hosts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table

from headfirst.control.cli.shown.commands import print_commands
from headfirst.control.terminal import Terminal
from headfirst.decide.engines.presets import DESTINATIONS, destination, words
from headfirst.decide.plan.capabilities import sentence
from headfirst.decide.plan.sizing.fit import memory_text
from headfirst.decide.plan.types import (
    Fit,
    Outbound,
    Plan,
    PlannedReplica,
    PlannedService,
    Sized,
    WeightsTime,
)

GB, GIB = 10**9, 2**30
_PARSERS = DESTINATIONS["tools"] | DESTINATIONS["reasoning"]
_COLOURS = {"fits": "bold green", "uncertain": "bold yellow", "unfit": "bold red", "unknown": "bold"}


def print_plan(plan: Plan, limit: Collection[str] | None = None, *, commands: bool = False) -> None:
    """Print the plan; with `limit`, of these hosts only. `commands`: also the docker run lines. A plan that
    does not fit has none: nothing starts.
    """

    def shows(host: str) -> bool:
        return limit is None or host in limit

    console = Terminal(highlight=False)
    console.paragraph(plan.verdict.text, _COLOURS[plan.verdict.state])
    for service in plan.services:
        of = f"{service.name}: " if len(plan.services) > 1 else ""
        for warning in service.warnings:
            console.paragraph(f"Warning: {of}{warning}", "yellow")
    ports = [each for each in plan.rank_ports if shows(each.host)]
    _print_by_host(console, [(row.host, [row.reason]) for row in ports if row.exposed], "Warning: ", "yellow")
    for service in plan.services:
        console.print()
        _print_service(console, service)
    console.print()
    for text, services in itertools.groupby(plan.services, _described_by):
        names = ", ".join(service.served_model_name for service in services)
        console.paragraph(f"{names}: described by {text}")
    _print_rates(console, [service.weights.time for service in plan.services])
    _print_nodes(console, plan, shows)
    if commands and plan.verdict.state != "unfit":
        print_commands(console, plan, shows)


class _Row(NamedTuple):
    """A program on a host; neighbours with the same `alike` are shown in one row."""

    host: str
    address: str
    about: str
    alike: str
    rank: str = "–"
    replica: str = ""
    reasons: Sequence[str] = ()  # of a rank's network


def _print_nodes(console: Terminal, plan: Plan, shows: Callable[[str], bool]) -> None:
    shown = [row for row in _rows(plan) if shows(row.host)]
    table = Table("rank", "host", "address", "ports", box=None, title="Nodes", title_justify="left")
    for _, rows in itertools.groupby(shown, lambda row: row.alike):
        hosts, addresses, abouts, _, ranks, replicas, _ = zip(*rows, strict=True)
        about = "; ".join(filter(None, (abouts[0], spans(replicas))))
        table.add_row(spans(ranks), spans(hosts), spans(addresses), escape(about))
    console.print(table)
    _print_by_host(console, [(row.host, row.reasons) for row in shown if row.rank != "–"])
    closed = [each for each in plan.rank_ports if shows(each.host) and not each.exposed]
    _print_by_host(console, [(row.host, [row.reason]) for row in closed])
    disks = [each for each in plan.disks if shows(each.host)]
    _print_by_host(
        console, [(row.host, [f"{row.bytes / GB:,.0f} GB of disk at {row.path}"]) for row in disks]
    )
    _print_by_host(console, [(row.host, [_outbound(row)]) for row in plan.outbound if shows(row.host)])


def _outbound(out: Outbound) -> str:
    """What leaves the cluster through proxies."""
    login = ", with a login" if out.has_login else ""
    http = "" if out.http_proxy == out.https_proxy else f" (http: {out.http_proxy or 'none'})"
    return f"outgoing requests through {out.https_proxy}{http}{login}; directly: {', '.join(out.no_proxy)}"


def _rows(plan: Plan) -> Iterator[_Row]:
    several = sum(len(service.replicas) for service in plan.services) > 1
    for service in plan.services:
        for replica in service.replicas:
            of = f"{service}/{replica.index}"
            for node in replica.nodes:
                ports = f"{replica.engine_port} API" if node.rank == 0 else ""
                ports += f", {replica.dist_port} rendezvous" if ports and len(replica.nodes) > 1 else ""
                gpus = f"GPU {spans(node.gpu_devices)}" if node.gpu_devices else ""
                about = "; ".join(filter(None, (ports, gpus, replica.role)))
                # Heads of several replicas are one row, and workers of one replica.
                alike, of_several = f"{of if node.rank else service} {about}", of if several else ""
                reasons = node.network.reasons
                yield _Row(node.host, node.address, about, alike, str(node.rank), of_several, reasons)
    for service in plan.services:
        for router in service.routers:
            about = f"{router.port} router of {service}, {router.policy}, {router.metrics_port} metrics"
            yield _Row(router.host, router.address, about, router.url)
    for spare in plan.spares:
        yield _Row(spare, "", "spare", "spare")
    if page := plan.webui:
        secret = "".join(f", {name}=…" for name in page.secret_env)
        yield _Row(page.host, page.address, f"{page.port} chat page{secret}", page.url)
    containers = plan.monitoring.containers if plan.monitoring else []
    for monitor in sorted(containers, key=lambda each: each.container.name):
        name = monitor.container.name.removeprefix("headfirst-")
        port = monitor.url.rpartition(":")[2].partition("/")[0]
        yield _Row(monitor.host, "", f"{port} {name}", name)
    if front := plan.proxy:
        what = "proxy with TLS" if front.tls != "none" else "proxy"
        yield _Row(front.host, ", ".join(front.addresses), f"{front.port} {what}", "proxy")


def spans(words: Iterable[str]) -> str:
    """Each word once; those that end in consecutive numbers as node01…node14."""
    runs: list[list[str]] = []
    for word in dict.fromkeys(filter(None, words)):
        if runs and word == _next(runs[-1][-1]):
            runs[-1].append(word)
        else:
            runs.append([word])
    return ", ".join(f"{run[0]}…{run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs)


def _next(word: str) -> str:
    """The word with the number at its end one higher: node02 after node01."""
    text, number = re.fullmatch(r"(.*?)(\d*)", word, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{text}{int(number) + 1:0{len(number)}}" if number else ""


def _print_by_host(
    console: Terminal, lines: Sequence[tuple[str, Sequence[str]]], indent: str = "  ", style: str = ""
) -> None:
    """Lines that several hosts have once; hosts are named where they differ."""
    hosts_of: dict[str, list[str]] = {}
    for host, text in ((host, text) for host, texts in lines for text in texts):
        hosts_of.setdefault(text, []).append(host)
    for text, hosts in hosts_of.items():
        where = "" if len(hosts) == len(lines) else f"{spans(hosts)}: "
        console.paragraph(f"{indent}{where}{text}", style)


def _described_by(service: PlannedService) -> str:
    return f"{service.model_described_by.rstrip('.')}; {service.engine}: {service.engine_described_by}"


def _print_service(console: Terminal, service: PlannedService) -> None:
    name = f"{service.name}: " if service.name else ""
    engine = f"{service.engine} {service.engine_version}"
    console.paragraph(f"{name}{service.model} as {service.served_model_name}, {engine}", "bold")
    console.paragraph(f"  Task: {service.task}. {sentence(service.capabilities)}")
    for sized, replicas in service.pools:
        _print_layout(console, service, sized, replicas)
    if service.transfer:
        reasons = " ".join(service.transfer.reasons)
        console.paragraph(f"  KV cache between prefill and decode: {service.transfer.way}. {reasons}")
    for sized, replicas in service.pools:
        advice = service.alternatives if replicas[0].role == service.smallest_role else []
        _print_memory(console, sized, advice, _of_role(replicas))
    _print_weights(console, service)
    _print_choices(console, service)
    for note in service.notes:
        console.paragraph(f"  Note: {note}")


def _of_role(replicas: Sequence[PlannedReplica]) -> str:
    return f" of the {replicas[0].role} replicas" if replicas[0].role else ""


def _print_layout(
    console: Terminal, service: PlannedService, sized: Sized, replicas: Sequence[PlannedReplica]
) -> None:
    count, nodes, role = len(replicas), len(replicas[0].nodes), replicas[0].role
    kind = counted(count, f"{role} replica" if role else "replica")
    console.paragraph(
        "  Layout: "
        + (f"{kind}, each " if count > 1 else f"{kind}: " if role else "")
        + f"{sized.layout}, {counted(sized.world_size, 'rank')} of "
        f"{'a GPU' if service.device == 'cuda' else 'CPU cores'} on {counted(nodes, 'node')}. "
        f"{sized.layout_reason}"
    )
    for line in sized.layouts_rejected:
        console.paragraph(f"    {line}")


def counted(number: int, noun: str) -> str:
    """1 node, 2 nodes."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _print_memory(console: Terminal, sized: Sized, alternatives: list[str], of: str) -> None:
    fit = sized.fit
    colour = {True: "", False: "red", None: ""}[fit.fits]
    console.paragraph(f"  Memory{of}: {fit.reason}", "yellow" if fit.uncertain else colour)
    for line in alternatives:
        console.paragraph(f"    Instead: {line}")
    if fit.terms and fit.gpu_memory_bytes:
        console.paragraph(f"    {_terms(fit)}")
    if sized.host_memory:
        console.paragraph(f"    Host memory: {sized.host_memory.reason}")


def _terms(fit: Fit) -> str:
    """What a GPU's memory is for, what a token takes of it, and the fraction that the engine takes."""
    rows = {"weights": fit.weight_bytes_per_rank - fit.draft_bytes_per_rank}
    rows |= {"weights of the draft model": fit.draft_bytes_per_rank} if fit.draft_bytes_per_rank else {}
    rows |= {fit.title(term): value for term, value in fit.terms.items()}
    listed = [f"{name} {value / GIB:.2f}" for name, value in rows.items()]
    a_token, state = f"{fit.kv_bytes_per_token:,} bytes a token", fit.state_bytes_per_request
    a_token += f", {memory_text(state)} a request" if state else ""
    text = (
        f"GiB of a GPU: {(fit.gpu_memory_bytes or 0) / GIB:.2f} = {' + '.join(listed)} + KV cache "
        f"{(fit.kv_pool_bytes or 0) / GIB:.2f} ({a_token})."
    )
    if fraction := fit.memory_fraction:
        whose = "as set" if fraction.is_set else "of the engine itself"
        text += f" Memory fraction: {fraction.value:.3f} ({fraction.flag}, {whose})."
    return text


def _print_weights(console: Terminal, service: PlannedService) -> None:
    weights = service.weights
    at = f", at revision {weights.revision}" if weights.revision else ""
    how = {"brought": "Brought", "staged": "Staged", "in_place": "In place"}[weights.placement]
    console.paragraph(
        f"  Weights: {weights.source}, {weights.source_bytes / GB:,.1f} GB of {service.precision}, to "
        f"{weights.directory}{at}. {how}: {weights.placement_reason}."
    )
    shares = []
    for share in weights.shares:
        text = f"layers {share.layers}, at most {share.source_bytes / GB:,.1f} GB"
        text += f", {share.served_bytes / GB:,.1f} GB as BF16" if service.convert_to_bf16 else ""
        shares.append((share.host, [text]))
    _print_by_host(console, shares, "    ")
    converted = f"yes, {weights.served_bytes / GB:,.1f} GB" if service.convert_to_bf16 else "no"
    if service.convert_to_bf16 or service.precision != "BF16":
        console.paragraph(f"  Conversion to BF16: {converted}. {service.convert_reason}")
    console.paragraph(f"  Time: {_time(weights.time)}")
    if service.rehearsal.in_up and service.rehearsal.not_rehearsed:
        console.paragraph(f"  Not rehearsed: {service.rehearsal.not_rehearsed}")


def _print_choices(console: Terminal, service: PlannedService) -> None:
    """Code of the model, the arguments of presets with their reasons, secrets, adapters and the draft."""
    code = "on" if service.trust_remote_code else "off"
    console.paragraph(f"  Remote code: {code}. {service.trust_reason}")
    if service.api_key_file:
        console.paragraph(f"  API key: from api_key_file={service.api_key_file}")
    if names := dict.fromkeys(name for replica in service.replicas for name in replica.secret_env):
        console.paragraph(f"  Secret environment: {', '.join(f'{name}=…' for name in names)}")
    for sized, replicas in service.pools:
        _print_arguments(console, sized, replicas)
    for adapter in service.adapters:
        rank = f", rank {adapter.rank}" if adapter.rank else ""
        id = f"{adapter.id}@{adapter.revision}" if adapter.revision else adapter.id
        console.paragraph(f"  Adapter {adapter.name}: {id} ({adapter.source}{rank}), to {adapter.directory}")
    if draft := service.draft_model:
        parts = [draft.source, draft.kind, f"{draft.source_bytes / GB:,.1f} GB" if draft.source_bytes else ""]
        at = f", at revision {draft.revision}" if draft.revision else ""
        text = f"Described by {draft.described_by}" if draft.described_by else "Not read"
        console.paragraph(
            f"  Draft model: {draft.id} ({', '.join(filter(None, parts))}), to {draft.directory}{at}. {text}"
        )


def _print_arguments(console: Terminal, sized: Sized, replicas: Sequence[PlannedReplica]) -> None:
    of, role = _of_role(replicas), replicas[0].role
    grouped = itertools.groupby(sized.chosen_arguments, lambda each: (each.reason, each.source))
    chosen = [(why, {each.flag: each.value for each in arguments}) for why, arguments in grouped]
    # Which parsers are on, the line above states: alone they need no reasons.
    alone = all(_PARSERS & set(map(destination, values)) for _, values in chosen)
    if chosen:
        flags = " ".join(word for _, values in chosen for word in words(values)) if alone else ""
        setting = f"{role}_engine_args" if role else "engine_args"
        console.paragraph(f"  Chosen engine arguments{of} ({setting} overrides each): {flags}".rstrip())
    for (reason, source), values in () if alone else chosen:
        console.print(escape(f"    {' '.join(words(values))}"), soft_wrap=True)
        console.paragraph(f"      {reason} ({source})")
    if sized.arguments_left_out:
        console.paragraph(f"  Engine arguments{of} that are not chosen:")
    for line in sized.arguments_left_out:
        console.paragraph(f"    {line}")


def _time(time: WeightsTime) -> str:
    """Until all nodes have the weights, and what would be slower or faster."""
    text = f"weights in about {about(time.seconds)}; bottleneck is {time.reason}."
    if time.own_lines_seconds is not None and time.own_lines_seconds < time.seconds:
        text += f" About {about(time.own_lines_seconds)} if each node has its own connection to the hub."
    return text


def _print_rates(console: Terminal, times: Sequence[WeightsTime]) -> None:
    sources: dict[str, dict[str, None]] = {}
    for rate in (rate for time in times for rate in time.rates):
        sources.setdefault(rate.known, {})[f"{rate.what} {rate.text}"] = None
    listed = "; ".join(f"{how}: {', '.join(rates)}" for how, rates in sources.items())
    better = "; set download_rate, network_rate, disk_rate, or use --probe" if "assumed" in sources else ""
    console.paragraph(f"Rates {listed}{better}")


def about(seconds: float) -> str:
    """A duration, roughly: seconds below a minute and a half, else minutes."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
