"""Who talks to whom in a plan: boxes and the links between them. Pure; drawing.py draws it.

A large cluster is grouped: a replica with many ranks and a service with many replicas have one box for those
that are not drawn one by one, and `notes` states it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeVar

from headfirst.decide.cluster.settings import Role
from headfirst.decide.frozen import Frozen
from headfirst.decide.plan.front.webui import chats
from headfirst.decide.plan.types import (
    Monitoring,
    MonitoringContainer,
    Node,
    Plan,
    PlannedReplica,
    PlannedService,
    Sized,
)

# More ranks of a replica, or replicas of a service, than this are not distinguished on a screen.
MOST_RANKS, RANKS_OF_MANY = 16, 8
MOST_REPLICAS, REPLICAS_OF_MANY = 8, 4
MOST_SPARES, SPARES_OF_MANY = 8, 4
_NAMES_OF_MANY = 4
_PROMPT = 1_000  # tokens of the prompt whose KV cache is written beside its arrow

PEOPLE, PROXY, PAGE = "people", "proxy", "page"
Kind = Literal["requests", "rendezvous", "figures", "kv"]
_T = TypeVar("_T")


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
    kind: Kind = "requests"


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
    return Topology(
        cluster=plan.cluster,
        entry=list(_entry(plan)),
        services=[_service(service, notes) for service in plan.services],
        spares=_spares(plan.spares, notes),
        monitoring=list(_monitoring(plan.monitoring)) if plan.monitoring else [],
        links=[*_links_of_people(plan), *_links_of_services(plan), *_links_of_monitoring(plan)],
        notes=notes,
    )


def _split(items: list[_T], most: int, of_many: int) -> tuple[list[_T], list[_T]]:
    """Those that have boxes of their own, and those that share one: none of at most `most`."""
    drawn = of_many if len(items) > most else len(items)
    return items[:drawn], items[drawn:]


def _pools(service: PlannedService) -> list[tuple[list[PlannedReplica], list[PlannedReplica]]]:
    """Of replicas that are alike, those that have boxes of their own, and those that share one."""
    many = len(service.replicas) > MOST_REPLICAS
    each = REPLICAS_OF_MANY // len(service.pools) if many else MOST_REPLICAS
    return [(replicas[:each], replicas[each:]) for _, replicas in service.pools]


def _heads(service: PlannedService) -> list[tuple[str, PlannedReplica]]:
    """Each replica with the id of the box that has its rank 0."""
    heads = []
    for drawn, rest in _pools(service):
        heads += [(_rank_id(service, replica, replica.nodes[0]), replica) for replica in drawn]
        heads += [(_rest_of_pool_id(service, replica), replica) for replica in rest]
    return heads


def _rest_of_pool_id(service: PlannedService, replica: PlannedReplica) -> str:
    return f"replicas:{service}{f':{replica.role}' if replica.role else ''}"


def _ranks(replica: PlannedReplica) -> tuple[list[Node], list[Node]]:
    """Ranks that have boxes of their own, and those that share one."""
    return _split(replica.nodes, MOST_RANKS, RANKS_OF_MANY)


def _rank_id(service: PlannedService, replica: PlannedReplica, node: Node) -> str:
    return f"rank:{service}/{replica.index}:{node.rank}"


def _rest_id(service: PlannedService, replica: PlannedReplica) -> str:
    return f"ranks:{service}/{replica.index}"


def _router_id(service: PlannedService, host: str) -> str:
    return f"router:{service}:{host}"


def _entry(plan: Plan) -> Iterator[Box]:
    yield Box(id=PEOPLE, kind="people", title="People and programs", name="people and programs")
    if proxy := plan.proxy:
        paths = [f"{route.path} → {', '.join(route.servers)}" for route in proxy.services]
        lines = [
            proxy.url,
            *(f"{address}:{proxy.port}" for address in proxy.addresses),
            "TLS" if proxy.tls != "none" else "without TLS",
            *_many(paths, "paths"),
        ]
        yield Box(id=PROXY, kind="entry", title=f"proxy on {proxy.host}", name="proxy", lines=lines)
    if page := plan.webui:
        lines = [f"{page.address}:{page.port}"]
        yield Box(id=PAGE, kind="entry", title=f"chat page on {page.host}", name="chat page", lines=lines)
    for service in plan.services:
        for router in service.routers:
            yield Box(
                id=_router_id(service, router.host),
                kind="entry",
                title=f"router on {router.host}",
                name=f"router of {service} on {router.host}",
                lines=[
                    f"of {service}, {router.policy}",
                    f"{router.address}:{router.port}",
                    f"metrics {router.metrics_port}",
                ],
            )


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
            f"{service}: {sum(grouped)} of {len(service.replicas)} replicas share "
            f"{'one box' if len(grouped) == 1 else 'boxes'}; `deploy plan` lists each."
        )
    return ServiceBoxes(
        title=str(service),
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
    drawn, rest = _ranks(replica)
    boxes = [_rank(service, replica, node) for node in drawn]
    if rest:
        ranks = f"ranks {rest[0].rank}–{rest[-1].rank}"
        boxes.append(
            Box(
                id=_rest_id(service, replica),
                kind="group",
                title=f"{len(rest)} more hosts",
                name=f"{ranks} of {service}/{replica.index}",
                lines=[
                    ranks,
                    _hosts([node.host for node in rest]),
                    *_gpu_count(service, ((replica, node) for node in rest)),
                ],
            )
        )
        notes.append(
            f"{service}/{replica.index}: {len(rest)} of {len(replica.nodes)} ranks share one box; "
            "`deploy plan` lists each."
        )
    title = f"{_role(replica)}replica {replica.index}"
    return ReplicaBoxes(title=title, role=replica.role, boxes=boxes, network=_network(service, replica))


def _rank(service: PlannedService, replica: PlannedReplica, node: Node) -> Box:
    lines = [f"rank {node.rank}", node.address]
    if node.rank == 0:
        lines.append(f"API {replica.engine_port}")
        if len(replica.nodes) > 1:
            lines.append(f"rendezvous {', '.join(map(str, replica.rendezvous_ports))}")
    gpus = _gpus(service, replica, node)
    if gpus:
        lines.append(
            f"{len(gpus)} GPUs" if node.gpu_devices is None else f"GPU {', '.join(_many(gpus, 'GPUs'))}"
        )
    return Box(
        id=_rank_id(service, replica, node),
        kind="rank",
        title=node.host,
        name=f"{node.host} (rank {node.rank} of {service}/{replica.index})",
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


def _gpu_count(service: PlannedService, ranks: Iterable[tuple[PlannedReplica, Node]]) -> list[str]:
    count = sum(len(_gpus(service, replica, node)) for replica, node in ranks)
    return [f"{count} GPUs"] if count else []


def _more_replicas(service: PlannedService, rest: Sequence[PlannedReplica]) -> ReplicaBoxes:
    ranks = [(replica, node) for replica in rest for node in replica.nodes]
    numbers = f"replicas {rest[0].index}–{rest[-1].index}"
    box = Box(
        id=_rest_of_pool_id(service, rest[0]),
        kind="group",
        title=f"{len(rest)} more replicas",
        name=f"{numbers} of {service}",
        lines=[
            _hosts(list(dict.fromkeys(node.host for _, node in ranks))),
            f"{len(rest[0].nodes)} {'rank' if len(rest[0].nodes) == 1 else 'ranks'} each",
            f"API {_ports(replica.engine_port for replica in rest)}",
            *_gpu_count(service, ranks),
        ],
    )
    return ReplicaBoxes(
        title=f"{_role(rest[0])}{numbers}",
        role=rest[0].role,
        boxes=[box],
        network=_network(service, rest[0]),
    )


def _ports(ports: Iterable[int]) -> str:
    return ", ".join(_many([str(port) for port in sorted(set(ports))], "ports"))


def _hosts(names: Sequence[str]) -> str:
    return f"{names[0]} … {names[-1]}" if len(names) > _NAMES_OF_MANY else ", ".join(names)


def _many(texts: Sequence[str], what: str) -> list[str]:
    rest = len(texts) - _NAMES_OF_MANY
    return list(texts) if rest < 1 else [*texts[:_NAMES_OF_MANY], f"and {rest} more {what}"]


def _network(service: PlannedService, replica: PlannedReplica) -> list[str]:
    """What carries the collectives between hosts; hosts are counted where they differ."""
    if len(replica.nodes) < 2:
        return []
    ways: Counter[str] = Counter()
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
        ways[way] += 1
    if len(ways) == 1:
        return [f"collectives: {next(iter(ways))}"]
    return _many([f"collectives, {count} hosts: {way}" for way, count in ways.items()], "kinds")


def _spares(hosts: list[str], notes: list[str]) -> list[Box]:
    drawn, rest = _split(hosts, MOST_SPARES, SPARES_OF_MANY)
    boxes = [Box(id=f"spare:{host}", kind="spare", title=host, name=host, lines=["spare"]) for host in drawn]
    if rest:
        title = f"{len(rest)} more spares"
        boxes.append(Box(id="spares", kind="spare", title=title, name=title, lines=[_hosts(rest)]))
        notes.append(f"{len(rest)} of {len(hosts)} spares share one box; `deploy plan` lists each.")
    return boxes


def _programs(monitoring: Monitoring) -> dict[str, list[MonitoringContainer]]:
    """Those of a kind, by its name: Prometheus, Grafana, and each kind of exporter."""
    programs: dict[str, list[MonitoringContainer]] = {}
    for program in monitoring.containers:
        programs.setdefault(program.container.name.removeprefix("headfirst-"), []).append(program)
    return programs


def _monitoring(monitoring: Monitoring) -> Iterator[Box]:
    """One box for each kind of program."""
    for name, programs in _programs(monitoring).items():
        hosts = [program.host for program in programs]
        where, lines = hosts[0], [programs[0].url.removeprefix("http://")]
        if len(hosts) > 1:
            where = f"{len(hosts)} hosts"
            lines = [_hosts(hosts), f"port {_ports(_port(program.url) for program in programs)}"]
        yield Box(id=_program_id(name), kind="monitoring", title=f"{name} on {where}", name=name, lines=lines)


def _program_id(name: str) -> str:
    return f"monitoring:{name}"


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


def _link(source: str, target: str, ports: Iterable[int], what: str, kind: Kind = "requests") -> TopologyLink:
    return TopologyLink(source=source, target=target, ports=list(ports), what=what, kind=kind)


def _links_of_people(plan: Plan) -> Iterator[TopologyLink]:
    """From people to the first program that answers them, and from the proxy and the page on."""
    page, first = plan.webui, PROXY if plan.proxy else PEOPLE
    if plan.proxy:
        yield _link(PEOPLE, PROXY, [plan.proxy.port], "chat page and API")
    if page:
        yield _link(first, PAGE, [page.port], "chat page")
    clients = [(first, service) for service in plan.services]
    clients += [(PAGE, service) for service in chats(plan.services) if page]
    for source, service in clients:
        for target, port in _doors(service):
            yield _link(source, target, [port], f"API of {service}")


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
            for target, port in _engines(service):
                yield _link(_router_id(service, router.host), target, [port], f"API of {service}")
        for replica in (replica for drawn, _ in _pools(service) for replica in drawn):
            ranks, rest = _ranks(replica)
            head, *sources = (_rank_id(service, replica, node) for node in ranks)
            sources += [_rest_id(service, replica)] if rest else []
            for source in sources:
                yield _link(source, head, replica.rendezvous_ports, "rendezvous", "rendezvous")
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
            yield _link(source, target, [], _transfer(service), "kv")
    for target, listening in ports.items():
        for source in decode:
            yield _link(source, target, sorted(listening), "rendezvous for the KV cache", "rendezvous")


def _links_of_monitoring(plan: Plan) -> Iterator[TopologyLink]:
    """From Prometheus to what it asks for figures, and from Grafana to Prometheus."""
    if plan.monitoring is None:
        return
    prometheus, grafana = _program_id("prometheus"), _program_id("grafana")
    if url := plan.monitoring.grafana_url:
        yield _link(grafana, prometheus, [_port(plan.monitoring.prometheus_url)], "figures", "figures")
        yield _link(PEOPLE, grafana, [_port(url)], "dashboards")
    for name, programs in _programs(plan.monitoring).items():
        if name not in ("prometheus", "grafana"):
            ports = sorted({_port(program.url) for program in programs})
            yield _link(prometheus, _program_id(name), ports, "figures", "figures")
    if plan.proxy:
        yield _link(prometheus, PROXY, [plan.proxy.metrics_port], "figures", "figures")
    for service in plan.services:
        for router in service.routers:
            target = _router_id(service, router.host)
            yield _link(prometheus, target, [router.metrics_port], "figures", "figures")
        for target, port in _engines(service):
            what = "figures, where the engine publishes them"
            yield _link(prometheus, target, [port], what, "figures")
