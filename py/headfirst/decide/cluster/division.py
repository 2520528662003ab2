"""Divides the hosts and GPUs of a cluster among the replicas of its services, and gives these routers. Pure.

Services take in the order of the inventory, each of them host after host. A replica is a part of one host, or
whole hosts. Where a service has GPUs of its own choice (gpu_devices) it takes these only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from headfirst.common.errors import InputError
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.cluster.types import Host, Place, Replica, Router, Service

# An engine may take ports after the rendezvous too, and the weights come over ports from 5010.
_DIST_PORT_STEP = 100


@dataclass(frozen=True)
class Members:
    """A service as the inventory lists it: `name` is its group, None in the short form."""

    name: str | None
    settings: ServiceSettings
    hosts: tuple[Host, ...]
    where: str | None
    given: Mapping[str, str | None] = field(default_factory=dict)


@dataclass
class _Taken:
    """What earlier services and replicas have of each host."""

    devices: dict[str, set[str]] = field(default_factory=dict)
    ports: set[tuple[str, str, int]] = field(default_factory=set)

    def port(self, kind: str, host: Host, first: int, step: int) -> int:
        """The first port of the host from `first`, in steps, that no other replica has for this."""
        while (kind, host.name, first) in self.ports:
            first += step
        self.ports.add((kind, host.name, first))
        return first


def divide(members: Sequence[Members]) -> tuple[Service, ...]:
    """Services with their replicas. Raises InputError where hosts or GPUs cannot be divided as written."""
    times: dict[str, int] = {}
    for one in members:
        for host in one.hosts:
            times[host.name] = times.get(host.name, 0) + 1
    taken = _Taken()
    services = tuple(_service(one, times, taken) for one in members)
    _refuse_idle_hosts(members, services)
    return services


def _refuse_idle_hosts(members: Sequence[Members], services: Sequence[Service]) -> None:
    """A host without a rank would be part of the cluster and serve nothing, unnoticed."""
    busy = {host.name for service in services for host in service.hosts}
    for one, service in zip(members, services, strict=True):
        idle = [host.name for host in one.hosts if host.name not in busy]
        if idle:
            raise InputError(
                f"{', '.join(idle)} would serve nothing: the {len(service.replicas)} replicas of "
                f"{one.name or 'the service'} take the hosts before",
                where=one.where,
                hint="Change replicas or gpus_per_replica so that every host has a rank, or remove the host.",
            )


def _service(one: Members, times: Mapping[str, int], taken: _Taken) -> Service:
    shared = [host.name for host in one.hosts if times[host.name] > 1]
    cut = one.settings.gpus_per_replica or one.settings.gpu_devices
    if one.settings.engine_device == "cpu":
        places = _whole_hosts(one) if _count(one) <= len(one.hosts) else _parts(one)
    elif shared or cut or _count(one) > len(one.hosts):
        places = _gpus(one, taken)
    else:
        places = _whole_hosts(one)
    replicas = []
    for index, own in enumerate(places):
        head = own[0].host
        replicas.append(
            Replica(
                index,
                own,
                engine_port=taken.port("engine", head, one.settings.engine_port, 1),
                dist_port=taken.port("dist", head, one.settings.dist_port, _DIST_PORT_STEP),
            )
        )
    return Service(one.name, one.settings, tuple(replicas), given=one.given)


def _count(one: Members) -> int:
    return one.settings.replicas or 1


def _whole_hosts(one: Members) -> list[tuple[Place, ...]]:
    """Replicas of as many whole hosts each."""
    count, hosts = _count(one), one.hosts
    if len(hosts) % count:
        raise InputError(
            f"{len(hosts)} hosts cannot be divided among {count} replicas",
            where=one.where,
            hint="Each replica needs as many hosts as the others: change replicas, or add hosts.",
        )
    each = len(hosts) // count
    return [
        tuple(Place(host) for host in hosts[start : start + each]) for start in range(0, len(hosts), each)
    ]


def _parts(one: Members) -> list[tuple[Place, ...]]:
    """More replicas than hosts, on CPUs: as many on each host."""
    count = _count(one)
    if count % len(one.hosts):
        raise InputError(
            f"{count} replicas cannot be spread evenly over {len(one.hosts)} hosts",
            where=one.where,
            hint="Write a multiple of the number of hosts.",
        )
    return [(Place(host),) for host in one.hosts for _ in range(count // len(one.hosts))]


def _gpus(one: Members, taken: _Taken) -> list[tuple[Place, ...]]:
    """Replicas of gpus_per_replica GPUs: a part of a host, or all free GPUs of several hosts."""
    free = {host.name: _free(one, host, taken) for host in one.hosts}
    each = one.settings.gpus_per_replica or _even(one, free)
    smallest = min(len(devices) for devices in free.values())
    if each > smallest:
        found = _over_hosts(one, each, free)
    else:
        found = [
            (Place(host, tuple(free[host.name][start : start + each])),)
            for host in one.hosts
            for start in range(0, len(free[host.name]) - each + 1, each)
        ]
    wanted = one.settings.replicas
    if wanted is not None and wanted > len(found):
        raise InputError(
            f"{wanted} replicas of {each} GPUs are more than the free GPUs of the service's hosts: "
            + ", ".join(f"{name} {len(devices)}" for name, devices in free.items()),
            where=one.where,
            hint=(
                f"{len(found)} replicas are possible: write "
                f"replicas={max(1, len(found))}, or fewer GPUs each."
            ),
        )
    found = found[:wanted]
    for place in (place for places in found for place in places):
        taken.devices.setdefault(place.host.name, set()).update(place.devices or ())
    return [tuple(_whole(place) for place in places) for places in found]


def _whole(place: Place) -> Place:
    """Without a list where the rank has every GPU of its host."""
    every = tuple(str(index) for index in range(place.host.gpus or 0))
    return Place(place.host) if place.devices == every else place


def _free(one: Members, host: Host, taken: _Taken) -> list[str]:
    if host.gpus is None:
        raise InputError(
            f"the number of GPUs of {host.name} is not in the inventory, and the service uses a part of them",
            where=one.where,
            hint="Write gpus=8, for example, on the line of the host or under [all:vars].",
        )
    chosen = one.settings.gpu_devices or [str(index) for index in range(host.gpus)]
    beyond = [device for device in chosen if device.isdecimal() and int(device) >= host.gpus]
    used = taken.devices.get(host.name, set())
    both = [device for device in one.settings.gpu_devices if device in used]
    if beyond or both or len(set(chosen)) < len(chosen):
        why = (
            f"{host.name} has no GPU {beyond[0]}: it has {host.gpus}, counted from 0"
            if beyond
            else f"GPU {both[0]} of {host.name} belongs to another service"
            if both
            else "a GPU is listed twice"
        )
        raise InputError(f"gpu_devices: {why}", where=one.where, hint="List other GPUs.")
    found = [device for device in chosen if device not in used]
    if not found:
        raise InputError(
            f"the services before it leave no GPU of {host.name} for {one.name or 'the service'}",
            where=one.where,
            hint="Give each service its share: gpus_per_replica and replicas, or gpu_devices.",
        )
    return found


def _even(one: Members, free: Mapping[str, Sequence[str]]) -> int:
    """GPUs of a replica where the inventory does not set it: an even share of the hosts' GPUs."""
    count, hosts = _count(one), len(one.hosts)
    smallest = min(map(len, free.values()))
    if count <= hosts:
        return smallest * (hosts // count)
    on_each, rest = divmod(count, hosts)
    if rest or smallest % on_each:
        raise InputError(
            f"{count} replicas cannot be spread evenly over {hosts} hosts with {smallest} GPUs each",
            where=one.where,
            hint="Write gpus_per_replica, or another number of replicas.",
        )
    return smallest // on_each


def _over_hosts(one: Members, each: int, free: Mapping[str, Sequence[str]]) -> list[tuple[Place, ...]]:
    """Replicas that span hosts: all free GPUs of each."""
    counts = {len(devices) for devices in free.values()}
    here = min(counts)
    if len(counts) > 1 or each % here:
        listed = ", ".join(f"{name} {len(devices)}" for name, devices in free.items())
        raise InputError(
            f"a replica of {each} GPUs cannot be made of whole hosts with {listed} free GPUs",
            where=one.where,
            hint="Give each host as many GPUs, and each replica a multiple of that.",
        )
    span = each // here
    return [
        tuple(Place(host, tuple(free[host.name])) for host in one.hosts[start : start + span])
        for start in range(0, len(one.hosts) - span + 1, span)
    ]


def with_routers(services: Sequence[Service], hosts: Sequence[Host]) -> tuple[Service, ...]:
    """The services with their routers: on each of `hosts`, the group [router].

    Where the group is empty, a service with several replicas has one on the cluster's head.
    """
    head = services[0].replicas[0].head
    taken: set[tuple[str, int]] = set()

    def free(host: Host, port: int) -> int:
        while (host.name, port) in taken:
            port += 1
        taken.add((host.name, port))
        return port

    found = []
    for service in services:
        own = hosts or ([head] if len(service.replicas) > 1 else [])
        routers = tuple(
            Router(
                host,
                port=free(host, service.settings.router_port),
                metrics_port=free(host, service.settings.router_metrics_port),
            )
            for host in own
        )
        found.append(replace(service, routers=routers))
    return tuple(found)
