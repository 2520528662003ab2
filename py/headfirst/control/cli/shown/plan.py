"""A plan as a person reads it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from rich.markup import escape
from rich.table import Table

from headfirst.control.terminal import Terminal
from headfirst.decide.cluster.settings import Role
from headfirst.decide.plan.sizing.fit import memory_text
from headfirst.decide.plan.types import (
    Carrier,
    Fit,
    Outbound,
    Plan,
    PlannedReplica,
    PlannedService,
    Sized,
    WeightsTime,
)

GB, GIB = 10**9, 2**30


def print_plan(plan: Plan, limit: Collection[str] | None = None, *, commands: bool = True) -> None:
    """Print ranks, weights, memory fit, ports and the docker run line of every node; with `limit`, of these
    hosts only. A plan that does not fit has no docker run lines: nothing starts. Nor has one without
    `commands`.
    """

    def shows(host: str) -> bool:
        return limit is None or host in limit

    console = Terminal(highlight=False)
    for service in plan.services:
        _print_service(console, service)
    nodes = [
        (service, replica, node)
        for service in plan.services
        for replica in service.replicas
        for node in replica.nodes
        if shows(node.host)
    ]
    several = len({(service.name, replica.index) for service, replica, _ in nodes}) > 1
    names = {id(node): _replica(service, replica) if several else "" for service, replica, node in nodes}
    table = Table("rank", "host", "address", "ports", box=None, title="Nodes", title_justify="left")
    for _, replica, node in nodes:
        ports = f"{replica.engine_port} API, {replica.dist_port} rendezvous" if node.rank == 0 else ""
        gpus = "" if node.gpu_devices is None else f"GPU {', '.join(node.gpu_devices)}"
        about = "; ".join(part for part in (ports, gpus, names[id(node)]) if part)
        table.add_row(str(node.rank), node.host, node.address, escape(about))
    routers = [
        (service, router) for service in plan.services for router in service.routers if shows(router.host)
    ]
    page = plan.webui if plan.webui and shows(plan.webui.host) else None
    front = plan.proxy if plan.proxy and shows(plan.proxy.host) else None
    for service, router in routers:
        about = f"{router.port} router of {service.name or service.served_model_name}, {router.policy}"
        table.add_row("–", router.host, router.address, escape(f"{about}, {router.metrics_port} its metrics"))
    for spare in plan.spares:
        if shows(spare):
            table.add_row("–", spare, "", "spare")
    if page:
        secret = "".join(f", {name}=…" for name in page.secret_env)
        table.add_row("–", page.host, page.address, f"{page.port} chat page{secret}")
    if plan.monitoring:
        for monitor in (each for each in plan.monitoring.containers if shows(each.host)):
            name = monitor.container.name.removeprefix("headfirst-")
            table.add_row("–", monitor.host, "", f"{name} at {monitor.url}")
    if front:
        what = "proxy with TLS" if front.tls != "none" else "proxy"
        table.add_row("–", front.host, ", ".join(front.addresses), f"{front.port} {what}")
    console.print(table)
    _print_reasons(console, [(node.host, node.network.reasons) for _, _, node in nodes])
    _print_reasons(console, [(ports.host, [ports.reason]) for ports in plan.rank_ports if shows(ports.host)])
    _print_outbound(console, [each for each in plan.outbound if shows(each.host)])
    if not commands or any(service.unfit for service in plan.services):
        return
    for _, _, node in nodes:
        of = f" of {names[id(node)]}" if names[id(node)] else ""
        title = f"rank {node.rank}{of} on {node.host}"
        _print_run(console, title, node.docker_run, node.container.image)
    for service, router in routers:
        title = f"router of {service.name or service.served_model_name} on {router.host}"
        _print_run(console, title, router.docker_run, router.container.image)
    if page:
        title = f"chat page on {page.host}"
        _print_run(console, title, page.docker_run, page.container.image)
    if front:
        title = f"proxy on {front.host}"
        _print_run(console, title, front.docker_run, front.container.image)


def _print_outbound(console: Terminal, hosts: Sequence[Outbound]) -> None:
    """What leaves the cluster through proxies, once for hosts with equal ones."""
    alike: dict[str, list[str]] = {}
    for each in hosts:
        login = ", with a login" if each.has_login else ""
        proxies = f"{each.https_proxy} (http: {each.http_proxy or 'none'}){login}"
        alike.setdefault(f"{proxies}; directly: {', '.join(each.no_proxy)}", []).append(each.host)
    for proxies, names in alike.items():
        console.paragraph(f"Outgoing requests of {', '.join(names)}: through {proxies}")


def _replica(service: PlannedService, replica: PlannedReplica) -> str:
    role = f" {replica.role}" if replica.role else ""
    return f"{service.name or service.served_model_name}/{replica.index}{role}"


def _print_service(console: Terminal, service: PlannedService) -> None:
    name = f"[bold]{escape(service.name)}[/]: " if service.name else ""
    console.print(
        f"{name}[bold]{escape(service.model)}[/] as {escape(service.served_model_name)}, "
        f"{service.engine} {service.engine_version}"
    )
    for sized, replicas in service.pools:
        _print_layout(console, service, sized, replicas)
    if service.transfer:
        console.paragraph(f"KV cache between prefill and decode replicas: {service.transfer.way}")
        for reason in service.transfer.reasons:
            console.paragraph(f"  {reason}")
    console.paragraph(f"Described by {service.model_described_by}")
    weights = service.weights
    console.paragraph(
        f"Weights: {weights.source}, {weights.source_bytes / GB:,.1f} GB, to {weights.directory}"
        + (f", at revision {weights.revision}" if weights.revision else "")
    )
    for share in weights.shares:
        console.paragraph(
            f"  {share.host}: layers {share.layers}, at most {share.source_bytes / GB:,.1f} GB"
            + (f", {share.served_bytes / GB:,.1f} GB as BF16" if service.convert_to_bf16 else "")
        )
    how = {"brought": "Brought", "staged": "Staged", "in_place": "In place"}[weights.placement]
    console.paragraph(f"  {how}: {weights.placement_reason}")
    warm = {"whole": "warmed", "part": "warmed", "none": "not warmed"}[weights.warm_cache]
    console.paragraph(f"  Page cache: {warm}, {weights.warm_reason}")
    converted = f"yes, {weights.served_bytes / GB:,.1f} GB" if service.convert_to_bf16 else "no"
    console.paragraph(f"Conversion to BF16: {converted}. {service.convert_reason}")
    console.paragraph(f"Remote code: {'on' if service.trust_remote_code else 'off'}. {service.trust_reason}")
    if service.api_key_file:
        console.paragraph(f"API key: that of api_key_file={service.api_key_file}")
    if names := dict.fromkeys(name for replica in service.replicas for name in replica.secret_env):
        console.paragraph(f"Secret environment: {', '.join(f'{name}=…' for name in names)}")
    _print_choices(console, service)
    _print_carrier(console, weights.carrier)
    _print_time(console, weights.time)
    for sized, replicas in service.pools:
        concerned = service.alternatives if replicas[0].role == service.smallest_role else []
        _print_fit(console, sized.fit, concerned, replicas[0].role)
        if sized.host_memory:
            of = f" of the {replicas[0].role} replicas" if replicas[0].role else ""
            console.paragraph(f"Host memory{of}: {sized.host_memory.reason}")
    for note in service.notes:
        console.paragraph(f"Note: {note}", "yellow")


def _print_layout(
    console: Terminal, service: PlannedService, sized: Sized, replicas: Sequence[PlannedReplica]
) -> None:
    count, nodes, role = len(replicas), len(replicas[0].nodes), replicas[0].role
    kind = counted(count, f"{role} replica" if role else "replica")
    console.print(
        (f"{kind}, each " if count > 1 else f"{kind}: " if role else "")
        + f"{sized.layout}: {counted(sized.world_size, 'rank')} of "
        f"{'a GPU' if service.device == 'cuda' else 'CPU cores'} on {counted(nodes, 'node')}"
    )
    console.paragraph(f"  {sized.layout_reason}")
    for line in sized.layouts_rejected:
        console.paragraph(f"  {line}")


def counted(number: int, noun: str) -> str:
    """1 node, 2 nodes."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _print_choices(console: Terminal, service: PlannedService) -> None:
    """The task where it is not chat, the arguments of presets with their reasons, adapters and the draft."""
    if service.task != "chat":
        console.print(f"Task: {service.task}")
    for sized, replicas in service.pools:
        _print_arguments(console, sized, replicas[0].role)
    for adapter in service.adapters:
        rank = f", rank {adapter.rank}" if adapter.rank else ""
        id = f"{adapter.id}@{adapter.revision}" if adapter.revision else adapter.id
        console.paragraph(f"Adapter {adapter.name}: {id} ({adapter.source}{rank}), to {adapter.directory}")
    if draft := service.draft_model:
        parts = [draft.source, draft.kind, f"{draft.source_bytes / GB:,.1f} GB" if draft.source_bytes else ""]
        at = f", at revision {draft.revision}" if draft.revision else ""
        console.paragraph(
            f"Draft model: {draft.id} ({', '.join(filter(None, parts))}), to {draft.directory}{at}"
        )
        console.paragraph(f"  Described by {draft.described_by}" if draft.described_by else "  Not read")


def _print_arguments(console: Terminal, sized: Sized, role: Role | None) -> None:
    of = f" of the {role} replicas" if role else ""
    if sized.chosen_arguments:
        setting = f"{role}_engine_args" if role else "engine_args"
        console.print(f"Chosen engine arguments{of} ({setting} in the inventory overrides each):")
    told = ""
    for argument in sized.chosen_arguments:
        console.print(escape(f"  {argument.flag} {argument.value}".rstrip()), soft_wrap=True)
        if argument.reason != told:
            console.paragraph(f"    {argument.reason} ({argument.source})")
        told = argument.reason
    if sized.arguments_left_out:
        console.print(f"Engine arguments{of} that are not chosen:")
    for line in sized.arguments_left_out:
        console.paragraph(f"  {line}", "yellow")


def _print_reasons(console: Terminal, chosen: list[tuple[str, list[str]]]) -> None:
    """What was chosen for each host and why; hosts are named where they differ."""
    told: dict[str, list[str]] = {}
    for host, reasons in chosen:
        for reason in reasons:
            told.setdefault(reason, []).append(host)
    for reason, hosts in told.items():
        where = "" if len(hosts) == len(chosen) else f"{', '.join(hosts)}: "
        console.paragraph(f"  {where + reason}")


def _print_carrier(console: Terminal, carrier: Carrier) -> None:
    """How the weights go from host to host, where that is not plain TCP or need not be."""
    if carrier.kind == "rdma":
        console.paragraph("Weights between hosts: RDMA (unproven on RDMA hardware), else TCP")
    for host, ports in carrier.ports.items():
        console.paragraph(f"  {host}: {', '.join(ports)}")
    if carrier.note:
        console.paragraph(f"  Note: {carrier.note}")


def _print_time(console: Terminal, time: WeightsTime) -> None:
    alone = f" One step and one node at a time: {about(time.documented_seconds)}."
    console.paragraph(
        f"Weights in about {about(time.seconds)}; bottleneck is {time.reason}."
        + (alone if time.documented_seconds > time.seconds else "")
    )
    if time.own_lines_seconds is not None and time.own_lines_seconds < time.seconds:
        console.paragraph(
            f"  About {about(time.own_lines_seconds)} where each node has its own connection to the hub."
        )
    known: dict[str, list[str]] = {}
    for rate in time.rates:
        known.setdefault(rate.known, []).append(f"{rate.what} {rate.text}")
    listed = "; ".join(f"{how}: {', '.join(rates)}" for how, rates in known.items())
    better = "; set download_rate, network_rate, disk_rate, or use --probe" if "assumed" in known else ""
    console.paragraph(f"  Rates {listed}{better}")


def about(seconds: float) -> str:
    """A duration, roughly: seconds below a minute and a half, else minutes."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _print_fit(console: Terminal, fit: Fit, alternatives: list[str], role: Role | None) -> None:
    colour = "yellow" if fit.uncertain else {True: "green", False: "red", None: "yellow"}[fit.fits]
    of = f" of the {role} replicas" if role else ""
    console.paragraph(f"Memory{of}: {fit.reason}", colour)
    for line in alternatives:
        console.paragraph(f"  Instead: {line}")
    table = Table("per GPU", "GiB", box=None)
    table.columns[1].justify = "right"
    rows = {
        "memory": fit.gpu_memory_bytes,
        "− weights": fit.weight_bytes_per_rank - fit.draft_bytes_per_rank,
    }
    rows |= {"− weights of the draft model": fit.draft_bytes_per_rank} if fit.draft_bytes_per_rank else {}
    rows |= {f"− {fit.title(term)}": value for term, value in fit.terms.items()}
    for name, value in (rows | {"= KV cache": fit.kv_pool_bytes}).items():
        table.add_row(name, "" if value is None else f"{value / GIB:,.2f}")
    if fit.terms:
        console.print(table)
    console.paragraph(
        f"KV cache of a GPU: {fit.kv_bytes_per_token:,} bytes a token"
        + (
            f" and {memory_text(fit.state_bytes_per_request)} a request"
            if fit.state_bytes_per_request
            else ""
        )
        + (f", {fit.kv_tokens:,} tokens" if fit.kv_tokens else "")
        + (
            f"; {fit.kv_tokens_of_replica:,} in the replica"
            if fit.kv_tokens_of_replica != fit.kv_tokens
            else ""
        )
    )


def _print_run(console: Terminal, title: str, line: list[str], image: str) -> None:
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
