"""Who talks to whom in a plan: boxes and the links between them. Pure; drawing.py draws it.

A large cluster is grouped: a replica with many ranks and a service with many replicas have one box for those
that are not drawn one by one, and `notes` states it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal
from urllib.parse import urlsplit

from headfirst.decide.cluster.settings import Role
from headfirst.decide.frozen import Frozen
from headfirst.decide.plan.front.webui import chats
from headfirst.decide.plan.types import Monitoring, Node, Plan, PlannedReplica, PlannedService, Sized

# More ranks of a replica, or replicas of a service, than this are not distinguished on a screen.
MOST_RANKS, RANKS_OF_MANY = 16, 8
MOST_REPLICAS, REPLICAS_OF_MANY = 8, 4
MOST_SPARES, SPARES_OF_MANY = 8, 4
_NAMES_OF_MANY = 4
_PROMPT = 1_000  # tokens of the prompt whose KV cache is written beside its arrow

PEOPLE, PROXY, PAGE = "people", "proxy", "page"


class Box(Frozen):
    """A program on a host, or several alike. `name` is how a link calls it; `gpus` are those of its rank."""

    id: str
    kind: Literal["people", "entry", "rank", "group", "spare", "monitoring"]
    title: str
    name: str
    lines: list[str] = []
    gpus: list[str] = []


class TopologyLink(Frozen):
    """`source` opens connections to `ports` of `target`; both are ids of boxes. Without ports: any.

    `kind` `kv`: the KV cache on its way from `source` to `target`, whichever of them connects.
    """

    source: str
    target: str
    ports: list[int]
    what: str
    kind: Literal["requests", "rendezvous", "figures", "kv"] = "requests"


class ReplicaBoxes(Frozen):
    """The ranks of a replica, or one box for several replicas; `network`: what carries the collectives.

    `role`: what it computes alone.
    """

    title: str
    role: Role | None
    boxes: list[Box]
    network: list[str]


class ServiceBoxes(Frozen):
    """A service and its replicas; `transfer`: the KV cache between those of prefill and those of decode."""

    title: str
    lines: list[str]
    replicas: list[ReplicaBoxes]
    transfer: str = ""


class Topology(Frozen):
    """All of it, from the people to the monitoring; `notes` states what is grouped."""

    cluster: str
    entry: list[Box]
    services: list[ServiceBoxes]
    spares: list[Box]
    monitoring: list[Box]
    links: list[TopologyLink]
    notes: list[str]

    @property
    def boxes(self) -> list[Box]:
        """Every box once."""
        ranks = [box for service in self.services for replica in service.replicas for box in replica.boxes]
        return [*self.entry, *ranks, *self.spares, *self.monitoring]


def topology(plan: Plan) -> Topology:
    """The boxes and links of a plan."""
    notes: list[str] = []
    services = [_service(service, notes) for service in plan.services]
    spares = _spares(plan.spares, notes)
    monitoring = _monitoring(plan.monitoring) if plan.monitoring else []
    return Topology(
        cluster=plan.cluster,
        entry=_entry(plan),
        services=services,
        spares=spares,
        monitoring=monitoring,
        links=[*_links_of_people(plan), *_links_of_services(plan), *_links_of_monitoring(plan, monitoring)],
        notes=notes,
    )


def _title(service: PlannedService) -> str:
    return service.name or service.served_model_name


def _heads(service: PlannedService) -> list[tuple[str, PlannedReplica]]:
    """Each replica with the id of the box that has its rank 0."""
    return [
        pair
        for drawn, rest in _pools(service)
        for pair in (
            *((_rank_id(service, replica, replica.nodes[0]), replica) for replica in drawn),
            *((_rest_of_pool_id(service, replica), replica) for replica in rest),
        )
    ]


def _pools(service: PlannedService) -> list[tuple[list[PlannedReplica], list[PlannedReplica]]]:
    """Of replicas that are alike, those that have boxes of their own, and those that share one."""
    pools = [replicas for _, replicas in service.pools]
    many = len(service.replicas) > MOST_REPLICAS
    each = REPLICAS_OF_MANY // len(pools) if many else len(service.replicas)
    return [(replicas[:each], replicas[each:]) for replicas in pools]


def _rest_of_pool_id(service: PlannedService, replica: PlannedReplica) -> str:
    return f"replicas:{_title(service)}{f':{replica.role}' if replica.role else ''}"


def _drawn_replicas(service: PlannedService) -> list[PlannedReplica]:
    """Those that have boxes of their own."""
    return [replica for drawn, _ in _pools(service) for replica in drawn]


def _drawn_ranks(replica: PlannedReplica) -> list[Node]:
    """Those that have boxes of their own."""
    return replica.nodes[: RANKS_OF_MANY if len(replica.nodes) > MOST_RANKS else None]


def _rank_id(service: PlannedService, replica: PlannedReplica, node: Node) -> str:
    return f"rank:{_title(service)}/{replica.index}:{node.rank}"


def _entry(plan: Plan) -> list[Box]:
    boxes = [Box(id=PEOPLE, kind="people", title="People and programs", name="people and programs")]
    if plan.proxy:
        proxy = plan.proxy
        paths = [f"{route.path} → {', '.join(route.servers)}" for route in proxy.services]
        lines = [
            proxy.url,
            *(f"{address}:{proxy.port}" for address in proxy.addresses),
            "TLS" if proxy.tls != "none" else "without TLS",
            *_many(paths, "paths"),
        ]
        boxes.append(Box(id=PROXY, kind="entry", title=f"proxy on {proxy.host}", name="proxy", lines=lines))
    if plan.webui:
        page = plan.webui
        lines = [f"{page.address}:{page.port}"]
        boxes.append(
            Box(id=PAGE, kind="entry", title=f"chat page on {page.host}", name="chat page", lines=lines)
        )
    for service in plan.services:
        for router in service.routers:
            lines = [
                f"of {_title(service)}, {router.policy}",
                f"{router.address}:{router.port}",
                f"metrics {router.metrics_port}",
            ]
            boxes.append(
                Box(
                    id=_router_id(service, router.host),
                    kind="entry",
                    title=f"router on {router.host}",
                    name=f"router of {_title(service)} on {router.host}",
                    lines=lines,
                )
            )
    return boxes


def _router_id(service: PlannedService, host: str) -> str:
    return f"router:{_title(service)}:{host}"


def _service(service: PlannedService, notes: list[str]) -> ServiceBoxes:
    layout = ", ".join(f"{_role(replicas[0])}{_layout(sized)}" for sized, replicas in service.pools)
    replicas: list[ReplicaBoxes] = []
    grouped: list[int] = []
    for drawn, rest in _pools(service):
        replicas += [_replica(service, replica, notes) for replica in drawn]
        if rest:
            replicas.append(_more_replicas(service, rest))
            grouped.append(len(rest))
    if grouped:
        notes.append(
            f"{_title(service)}: {sum(grouped)} of {len(service.replicas)} replicas share "
            f"{'one box' if len(grouped) == 1 else 'boxes'}; `deploy plan` lists each."
        )
    return ServiceBoxes(
        title=_title(service),
        lines=[
            f"{service.model} as {service.served_model_name}",
            f"{service.engine} {service.engine_version}, {service.device}, {layout}",
        ],
        replicas=replicas,
        transfer=_transfer(service),
    )


def _transfer(service: PlannedService) -> str:
    """What carries the KV cache to the decode replicas, and what it weighs."""
    transfer = service.transfer
    if transfer is None:
        return ""
    size = transfer.bytes_per_token
    weight = f", {size * _PROMPT / 10**6:,.0f} MB for {_PROMPT:,} tokens" if size else ""
    return f"KV cache: {transfer.way}{weight}"


def _role(replica: PlannedReplica) -> str:
    return f"{replica.role} " if replica.role else ""


def _layout(sized: Sized) -> str:
    sizes = [("TP", sized.tensor_parallel), ("PP", sized.pipeline_parallel), ("DP", sized.data_parallel)]
    return " × ".join(f"{name} {size}" for name, size in sizes if size > 1 or name == "TP")


def _replica(service: PlannedService, replica: PlannedReplica, notes: list[str]) -> ReplicaBoxes:
    drawn = _drawn_ranks(replica)
    boxes = [_rank(service, replica, node) for node in drawn]
    if rest := replica.nodes[len(drawn) :]:
        boxes.append(
            Box(
                id=_rest_id(service, replica),
                kind="group",
                title=f"{len(rest)} more hosts",
                name=f"ranks {rest[0].rank}–{rest[-1].rank} of {_title(service)}/{replica.index}",
                lines=[
                    f"ranks {rest[0].rank}–{rest[-1].rank}",
                    *_hosts([node.host for node in rest]),
                    *_gpu_count(service, replica, rest),
                ],
            )
        )
        notes.append(
            f"{_title(service)}/{replica.index}: {len(rest)} of {len(replica.nodes)} ranks share one box; "
            "`deploy plan` lists each."
        )
    title = f"{_role(replica)}replica {replica.index}"
    return ReplicaBoxes(title=title, role=replica.role, boxes=boxes, network=_network(service, replica))


def _rest_id(service: PlannedService, replica: PlannedReplica) -> str:
    return f"ranks:{_title(service)}/{replica.index}"


def _rank(service: PlannedService, replica: PlannedReplica, node: Node) -> Box:
    lines = [f"rank {node.rank}", node.address]
    if node.rank == 0:
        lines.append(f"API {replica.engine_port}")
        if len(replica.nodes) > 1:
            lines.append(f"rendezvous {', '.join(map(str, replica.rendezvous_ports or [replica.dist_port]))}")
    gpus = _gpus(service, replica, node)
    if gpus:
        lines.append(
            f"{len(gpus)} GPUs" if node.gpu_devices is None else f"GPU {', '.join(_many(gpus, 'GPUs'))}"
        )
    return Box(
        id=_rank_id(service, replica, node),
        kind="rank",
        title=node.host,
        name=f"{node.host} (rank {node.rank} of {_title(service)}/{replica.index})",
        lines=lines,
        gpus=gpus,
    )


def _gpus(service: PlannedService, replica: PlannedReplica, node: Node) -> list[str]:
    """Names of a rank's GPUs: indices, UUIDs, or numbers where it has all of the host."""
    if service.device != "cuda":
        return []
    if node.gpu_devices is not None:
        return list(node.gpu_devices)
    return [str(number) for number in range(service.sized(replica).world_size // len(replica.nodes))]


def _gpu_count(service: PlannedService, replica: PlannedReplica, nodes: Sequence[Node]) -> list[str]:
    count = sum(len(_gpus(service, replica, node)) for node in nodes)
    return [f"{count} GPUs"] if count else []


def _more_replicas(service: PlannedService, rest: Sequence[PlannedReplica]) -> ReplicaBoxes:
    hosts = list(dict.fromkeys(node.host for replica in rest for node in replica.nodes))
    gpus = sum(len(_gpus(service, replica, node)) for replica in rest for node in replica.nodes)
    box = Box(
        id=_rest_of_pool_id(service, rest[0]),
        kind="group",
        title=f"{len(rest)} more replicas",
        name=f"replicas {rest[0].index}–{rest[-1].index} of {_title(service)}",
        lines=[
            *_hosts(hosts),
            f"{len(rest[0].nodes)} {'rank' if len(rest[0].nodes) == 1 else 'ranks'} each",
            f"API {_ports(replica.engine_port for replica in rest)}",
            *([f"{gpus} GPUs"] if gpus else []),
        ],
    )
    return ReplicaBoxes(
        title=f"{_role(rest[0])}replicas {rest[0].index}–{rest[-1].index}",
        role=rest[0].role,
        boxes=[box],
        network=_network(service, rest[0]),
    )


def _ports(ports: Iterator[int]) -> str:
    return ", ".join(_many([str(port) for port in sorted(set(ports))], "ports"))


def _hosts(names: Sequence[str]) -> list[str]:
    return [f"{names[0]} … {names[-1]}" if len(names) > _NAMES_OF_MANY else ", ".join(names)]


def _many(texts: Sequence[str], what: str) -> list[str]:
    rest = len(texts) - _NAMES_OF_MANY
    return list(texts) if rest < 1 else [*texts[:_NAMES_OF_MANY], f"and {rest} more {what}"]


def _network(service: PlannedService, replica: PlannedReplica) -> list[str]:
    """What carries the collectives between hosts; hosts are counted where they differ."""
    if len(replica.nodes) < 2:
        return []
    ways: dict[str, int] = {}
    for node in replica.nodes:
        network = node.network
        nic = f"interface {network.nic}" if network.nic else "the engine's choice of interface"
        if service.device != "cuda":
            way = f"TCP, {nic}"
        elif network.hca:
            gid = f" GID {network.ib_gid_index}" if network.ib_gid_index is not None else ""
            way = f"RDMA {network.hca.removeprefix('=')}{gid}, {nic}"
        else:
            way = f"NCCL's choice of network, {nic}"
        ways[way] = ways.get(way, 0) + 1
    if len(ways) == 1:
        return [f"collectives: {next(iter(ways))}"]
    return _many([f"collectives, {count} hosts: {way}" for way, count in ways.items()], "kinds")


def _spares(hosts: Sequence[str], notes: list[str]) -> list[Box]:
    drawn = hosts[: SPARES_OF_MANY if len(hosts) > MOST_SPARES else None]
    boxes = [Box(id=f"spare:{host}", kind="spare", title=host, name=host, lines=["spare"]) for host in drawn]
    if rest := hosts[len(drawn) :]:
        title = f"{len(rest)} more spares"
        boxes.append(Box(id="spares", kind="spare", title=title, name=title, lines=_hosts(rest)))
        notes.append(f"{len(rest)} of {len(hosts)} spares share one box; `deploy plan` lists each.")
    return boxes


def _monitoring(monitoring: Monitoring) -> list[Box]:
    """One box for Prometheus, one for Grafana, and one for each kind of exporter."""
    hosts_of: dict[str, list[str]] = {}
    urls: dict[str, list[str]] = {}
    for program in monitoring.containers:
        name = program.container.name.removeprefix("headfirst-")
        hosts_of.setdefault(name, []).append(program.host)
        urls.setdefault(name, []).append(program.url)
    return [
        Box(
            id=f"monitoring:{name}",
            kind="monitoring",
            title=f"{name} on {hosts[0]}" if len(hosts) == 1 else f"{name} on {len(hosts)} hosts",
            name=name,
            lines=[
                *([] if len(hosts) == 1 else _hosts(hosts)),
                *([_place(urls[name][0])] if len(hosts) == 1 else [f"port {_ports(map(_port, urls[name]))}"]),
            ],
        )
        for name, hosts in hosts_of.items()
    ]


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _place(url: str) -> str:
    return f"{urlsplit(url).hostname}:{_port(url)}"


def _links_of_people(plan: Plan) -> Iterator[TopologyLink]:
    """From people to the first program that answers them, and from the proxy and the page on."""
    page = plan.webui
    if proxy := plan.proxy:
        yield TopologyLink(source=PEOPLE, target=PROXY, ports=[proxy.port], what="chat page and API")
        if page:
            yield TopologyLink(source=PROXY, target=PAGE, ports=[page.port], what="chat page")
    elif page:
        yield TopologyLink(source=PEOPLE, target=PAGE, ports=[page.port], what="chat page")
    source = PROXY if plan.proxy else PEOPLE
    for service in plan.services:
        for target, port in _doors(service):
            yield TopologyLink(source=source, target=target, ports=[port], what=f"API of {_title(service)}")
    if page:
        for service in chats(plan.services):
            for target, port in _doors(service):
                yield TopologyLink(source=PAGE, target=target, ports=[port], what=f"API of {_title(service)}")


def _doors(service: PlannedService) -> list[tuple[str, int]]:
    """Where clients of a service connect to: its routers, or rank 0 of its replicas."""
    if service.routers:
        return [(_router_id(service, router.host), router.port) for router in service.routers]
    return _engines(service)


def _engines(service: PlannedService) -> list[tuple[str, int]]:
    """The box and the port of each replica's engine, once."""
    return list(dict.fromkeys((head, replica.engine_port) for head, replica in _heads(service)))


def _links_of_services(plan: Plan) -> Iterator[TopologyLink]:
    """From the routers to rank 0 of each replica, from the ranks to their rendezvous, and the KV cache."""
    for service in plan.services:
        for router in service.routers:
            source = _router_id(service, router.host)
            for target, port in _engines(service):
                yield TopologyLink(
                    source=source, target=target, ports=[port], what=f"API of {_title(service)}"
                )
        for replica in _drawn_replicas(service):
            head = _rank_id(service, replica, replica.nodes[0])
            ports = replica.rendezvous_ports or [replica.dist_port]
            ranks = _drawn_ranks(replica)
            sources = [_rank_id(service, replica, node) for node in ranks[1:]]
            if replica.nodes[len(ranks) :]:
                sources.append(_rest_id(service, replica))
            for source in sources:
                yield TopologyLink(
                    source=source, target=head, ports=ports, what="rendezvous", kind="rendezvous"
                )
        yield from _links_of_transfer(service)


def _links_of_transfer(service: PlannedService) -> Iterator[TopologyLink]:
    """From each prefill replica to each decode replica the KV cache, and back the request for it."""
    if service.transfer is None or service.prefill is None:
        return
    ports: dict[str, set[int]] = {}
    for head, replica in _heads(service):
        if replica.role == "prefill" and replica.transfer_port:
            first = replica.transfer_port
            ports.setdefault(head, set()).update(range(first, first + service.prefill.data_parallel))
    decode = dict.fromkeys(head for head, replica in _heads(service) if replica.role == "decode")
    for source in ports:
        for target in decode:
            yield TopologyLink(source=source, target=target, ports=[], what=_transfer(service), kind="kv")
    for target, listening in ports.items():
        for source in decode:
            yield TopologyLink(
                source=source,
                target=target,
                ports=sorted(listening),
                what="rendezvous for the KV cache",
                kind="rendezvous",
            )


def _links_of_monitoring(plan: Plan, boxes: Sequence[Box]) -> Iterator[TopologyLink]:
    """From Prometheus to what it asks for figures, and from Grafana to Prometheus."""
    if plan.monitoring is None:
        return
    ids = {box.name: box.id for box in boxes}
    source = ids["prometheus"]
    port = _port(plan.monitoring.prometheus_url)
    if plan.monitoring.grafana_url and "grafana" in ids:
        yield TopologyLink(source=ids["grafana"], target=source, ports=[port], what="figures", kind="figures")
        grafana = _port(plan.monitoring.grafana_url)
        yield TopologyLink(source=PEOPLE, target=ids["grafana"], ports=[grafana], what="dashboards")
    for name, id in ids.items():
        if name not in ("prometheus", "grafana"):
            ports = sorted(
                {
                    _port(program.url)
                    for program in plan.monitoring.containers
                    if program.container.name == f"headfirst-{name}"
                }
            )
            yield TopologyLink(source=source, target=id, ports=ports, what="figures", kind="figures")
    if plan.proxy:
        yield TopologyLink(
            source=source, target=PROXY, ports=[plan.proxy.metrics_port], what="figures", kind="figures"
        )
    for service in plan.services:
        for router in service.routers:
            target = _router_id(service, router.host)
            yield TopologyLink(
                source=source, target=target, ports=[router.metrics_port], what="figures", kind="figures"
            )
        for target, port in _engines(service):
            what = "figures, where the engine publishes them"
            yield TopologyLink(source=source, target=target, ports=[port], what=what, kind="figures")
