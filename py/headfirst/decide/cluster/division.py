"""Divides the hosts and GPUs of a cluster among the replicas of its services, and gives these routers. Pure.

Services take in the order of the inventory, each of them host after host. A replica is a part of one host, or
whole hosts. Where a service has GPUs of its own choice (gpu_devices) it takes these only. Prefill replicas
take before the decode replicas of their service.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import get_args

from headfirst.common.errors import InputError
from headfirst.decide.cluster.settings import Role, ServiceSettings
from headfirst.decide.cluster.types import Host, Place, Replica, Router, Service
from headfirst.decide.cluster.values import device_kind

# An engine may take ports after the rendezvous too, and the weights come over ports from 5010.
_PORT_STEP = 100
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class Members:
    """A service as the inventory lists it: `name` is its group, None in the short form.

    `role_hosts` are the names of the hosts in the groups [prefill] and [decode]. `role`: of a service that
    has these replicas alone, as the settings of both roles are names with it in front.
    """

    name: str | None
    settings: ServiceSettings
    hosts: tuple[Host, ...]
    where: str | None
    given: Mapping[str, str | None] = field(default_factory=dict)
    role_hosts: Mapping[Role, frozenset[str]] = field(default_factory=dict)
    role: Role | None = None

    def setting(self, name: str) -> str:
        """How the inventory names the setting for these replicas."""
        return f"{self.role}_{name}" if self.role else name

    @property
    def alike(self) -> bool:
        """Whether these are the prefill and decode replicas together, with as many GPUs each."""
        return self.role is None and self.settings.prefill_replicas is not None

    @property
    def count(self) -> str:
        """How a hint writes a number of replicas."""
        both = "prefill_replicas and decode_replicas with a sum of "
        return both if self.alike else f"{self.setting('replicas')}="


@dataclass
class _Claims:
    """What earlier services and replicas have of each host."""

    devices: dict[str, set[str]] = field(default_factory=dict)
    ports: set[tuple[str, str, int]] = field(default_factory=set)

    def port(self, kind: str, hosts: Sequence[Host], first: int, step: int) -> int:
        """The first port from `first`, in steps, that no other replica has for this on one of the hosts."""
        while any((kind, host.name, first) in self.ports for host in hosts):
            first += step
        self.ports.update((kind, host.name, first) for host in hosts)
        return first


def divide(groups: Sequence[Members]) -> tuple[Service, ...]:
    """Services with their replicas. Raises InputError where hosts or GPUs cannot be divided as written."""
    times = Counter(host.name for group in groups for host in group.hosts)
    claims = _Claims()
    services = tuple(_service(group, times, claims) for group in groups)
    _refuse_idle_hosts(groups, services)
    return services


def _refuse_idle_hosts(groups: Sequence[Members], services: Sequence[Service]) -> None:
    """A host without a rank would be part of the cluster and serve nothing, unnoticed."""
    busy = {host.name for service in services for host in service.hosts}
    for group, service in zip(groups, services, strict=True):
        idle = [host.name for host in group.hosts if host.name not in busy]
        if idle:
            raise InputError(
                f"{', '.join(idle)} would serve nothing: the {len(service.replicas)} replicas of "
                f"{group.name or 'the service'} take the hosts before",
                where=group.where,
                hint="Change the number of replicas or of their GPUs so that every host has a rank, or "
                "remove the host.",
            )


def _service(group: Members, times: Mapping[str, int], claims: _Claims) -> Service:
    replicas: list[Replica] = []
    for role, places in _placements(group, times, claims):
        hosts = [place.host for place in places]
        settings = group.settings
        replicas.append(
            Replica(
                len(replicas),
                places,
                engine_port=claims.port("engine", hosts[:1], settings.engine_port, 1),
                dist_port=claims.port("dist", hosts[:1], settings.dist_port, _PORT_STEP),
                role=role,
                transfer_port=claims.port("transfer", hosts, settings.kv_transfer_port, _PORT_STEP)
                if role
                else None,
            )
        )
    return Service(
        group.name, group.settings, tuple(replicas), given=group.given, role_hosts=group.role_hosts
    )


def _placements(
    group: Members, times: Mapping[str, int], claims: _Claims
) -> list[tuple[Role | None, tuple[Place, ...]]]:
    """What each replica does, and its hosts."""
    prefill, decode = group.settings.prefill_replicas, group.settings.decode_replicas
    if not prefill or not decode:
        return [(None, places) for places in _divided(group, times, claims)]
    counts = zip(ROLES, (prefill, decode), strict=True)
    roles: list[Role | None] = [role for role, count in counts for _ in range(count)]
    settings_of = {role: group.settings.of_role(role) for role in ROLES}
    hosts_of = _hosts_of_roles(group)
    if not hosts_of and not any(settings.gpus_per_replica for settings in settings_of.values()):
        alike = replace(group, settings=group.settings.model_copy(update={"replicas": len(roles)}))
        return list(zip(roles, _divided(alike, times, claims), strict=True))
    # Where the inventory does not divide the hosts, the roles share all of them.
    shared = [host.name for host in group.hosts if all(host in subset for subset in hosts_of.values())]
    placements: list[tuple[Role | None, tuple[Place, ...]]] = []
    for role, settings in settings_of.items():
        hosts = hosts_of[role] if hosts_of else _with_free_gpus(group, claims)
        role_group = replace(group, settings=settings, hosts=hosts, role=role)
        used = {**times, **dict.fromkeys(shared, 2)}
        placements += [(role, places) for places in _divided(role_group, used, claims)]
    return placements


def _hosts_of_roles(group: Members) -> dict[Role, tuple[Host, ...]]:
    """The hosts of prefill and decode replicas; {} where neither group lists hosts of the service.

    Where only one does, the hosts that it does not list are of the other role.
    """
    listed = {
        role: tuple(host for host in group.hosts if host.name in group.role_hosts.get(role, ()))
        for role in ROLES
    }
    if not any(listed.values()):
        return {}
    rest = tuple(host for host in group.hosts if not any(host in subset for subset in listed.values()))
    hosts = {role: subset or rest for role, subset in listed.items()}
    if empty := next((role for role, subset in hosts.items() if not subset), None):
        raise InputError(
            f"no host of {group.name or 'the service'} is left for the {empty} replicas",
            where=group.where,
            hint=f"List hosts of it in [{empty}].",
        )
    return hosts


def _with_free_gpus(group: Members, claims: _Claims) -> tuple[Host, ...]:
    """The hosts that have a GPU left; all where none has, for the message."""
    free = [host for host in group.hosts if len(claims.devices.get(host.name, ())) < (host.gpus or 1)]
    return tuple(free) or group.hosts


def _divided(group: Members, times: Mapping[str, int], claims: _Claims) -> list[tuple[Place, ...]]:
    """The hosts of each replica, all of which are alike."""
    shared = any(times[host.name] > 1 for host in group.hosts)
    cut = group.settings.gpus_per_replica or group.settings.gpu_devices
    if group.settings.engine_device == "cpu":
        return _whole_hosts(group) if _count(group) <= len(group.hosts) else _parts(group)
    if shared or cut or _count(group) > len(group.hosts):
        return _gpus(group, claims)
    return _whole_hosts(group)


def _count(group: Members) -> int:
    return group.settings.replicas or 1


def _whole_hosts(group: Members) -> list[tuple[Place, ...]]:
    """Replicas of as many whole hosts each."""
    count, hosts = _count(group), group.hosts
    if len(hosts) % count:
        raise InputError(
            f"{len(hosts)} hosts cannot be divided among {count} replicas",
            where=group.where,
            hint="Each replica needs as many hosts as the others: change their number, or add hosts.",
        )
    each = len(hosts) // count
    return [
        tuple(Place(host) for host in hosts[start : start + each]) for start in range(0, len(hosts), each)
    ]


def _parts(group: Members) -> list[tuple[Place, ...]]:
    """More replicas than hosts, on CPUs: as many on each host."""
    count = _count(group)
    if count % len(group.hosts):
        raise InputError(
            f"{count} replicas cannot be spread evenly over {len(group.hosts)} hosts",
            where=group.where,
            hint="Write a multiple of the number of hosts.",
        )
    return [(Place(host),) for host in group.hosts for _ in range(count // len(group.hosts))]


def _gpus(group: Members, claims: _Claims) -> list[tuple[Place, ...]]:
    """Replicas of gpus_per_replica GPUs: a part of a host, or all free GPUs of several hosts."""
    free = {host.name: _free(group, host, claims) for host in group.hosts}
    each = group.settings.gpus_per_replica or _even(group, free)
    smallest = min(len(devices) for devices in free.values())
    if each > smallest:
        replicas = _over_hosts(group, each, free)
    else:
        replicas = [
            (Place(host, tuple(free[host.name][start : start + each])),)
            for host in group.hosts
            for start in range(0, len(free[host.name]) - each + 1, each)
        ]
    count = group.settings.replicas
    if _count(group) > len(replicas):
        raise InputError(
            f"{_count(group)} replicas of {each} GPUs are more than the free GPUs of the service's hosts: "
            + ", ".join(f"{name} {len(devices)}" for name, devices in free.items()),
            where=group.where,
            hint=f"{len(replicas)} replicas are possible: write {group.count}{len(replicas)}, or fewer GPUs "
            "each."
            if replicas
            else f"Write {group.setting('gpus_per_replica')}={sum(map(len, free.values()))} or fewer.",
        )
    replicas = replicas[:count]
    for place in (place for places in replicas for place in places):
        claims.devices.setdefault(place.host.name, set()).update(place.devices or ())
    return [tuple(_whole(place) for place in places) for places in replicas]


def _whole(place: Place) -> Place:
    """Without a list where the rank has every GPU of its host."""
    every = tuple(str(index) for index in range(place.host.gpus or 0))
    return Place(place.host) if place.devices == every else place


def _free(group: Members, host: Host, claims: _Claims) -> list[str]:
    if host.gpus is None:
        raise InputError(
            f"the number of GPUs of {host.name} is not in the inventory, and the service uses a part of them",
            where=group.where,
            hint="Write gpus=8, for example, on the line of the host or under [all:vars].",
        )
    chosen = group.settings.gpu_devices or [str(index) for index in range(host.gpus)]
    used = claims.devices.get(host.name, set())
    if why := _contradiction(group, host, chosen, used):
        raise InputError(
            f"gpu_devices: {why}",
            where=group.where,
            hint="List other GPUs; those of a host all by index, or all by UUID.",
        )
    free = [device for device in chosen if device not in used]
    if not free:
        raise InputError(
            f"the services before it leave no GPU of {host.name} for {group.name or 'the service'}",
            where=group.where,
            hint="Give each service its share: gpus_per_replica and replicas, or gpu_devices.",
        )
    return free


def _contradiction(group: Members, host: Host, chosen: Sequence[str], used: AbstractSet[str]) -> str:
    """Why a service cannot have these GPUs of a host, of which earlier ones use some; "" where it can."""
    count, listed = host.gpus or 0, group.settings.gpu_devices
    kinds = {device_kind(device) for device in (*chosen, *used)}
    if len(kinds) > 1:  # one GPU has an index and a UUID, and the parts of it UUIDs of their own
        ways = " and by ".join(sorted(kinds))
        return f"services name GPUs of {host.name} by {ways}: name all of them in one way"
    if beyond := [device for device in listed if device.isdecimal() and int(device) >= count]:
        return f"{host.name} has no GPU {beyond[0]}: it has {count}, counted from 0"
    if both := [device for device in listed if any(_same(device, other) for other in used)]:
        return f"GPU {both[0]} of {host.name} belongs to another service"
    if any(_same(*pair) for pair in combinations(listed, 2)):
        return "a GPU is listed twice"
    if kinds == {"UUID"} and len(chosen) + len(used) > count:
        return f"{len(chosen) + len(used)} GPUs of {host.name} are listed: it has {count}"
    return ""


def _same(device: str, other: str) -> bool:
    """Whether both name one GPU; Docker takes the beginning of a UUID, too."""
    return device == other or ("-" in device and (device.startswith(other) or other.startswith(device)))


def _even(group: Members, free: Mapping[str, Sequence[str]]) -> int:
    """GPUs of a replica where the inventory does not set it: an even share of the hosts' GPUs."""
    count, hosts = _count(group), len(group.hosts)
    smallest = min(map(len, free.values()))
    if count <= hosts:
        return smallest * (hosts // count)
    on_each, rest = divmod(count, hosts)
    if rest or smallest % on_each:
        fleet = f"1 host with {smallest} GPUs" if hosts == 1 else f"{hosts} hosts with {smallest} GPUs each"
        even = [str(hosts * share) for share in range(1, smallest + 1) if smallest % share == 0]
        even = [number for number in even if number != "1"] if group.alike else even
        fewer = "" if count > hosts * smallest else ", or leave GPUs idle: write gpus_per_replica"
        raise InputError(
            f"{count} replicas cannot be spread evenly over {fleet}",
            where=group.where,
            hint=f"Write {group.count}{', '.join(even[:-1])} or {even[-1]}{fewer}."
            if len(even) > 1
            else f"Write {group.count}{even[0]}."
            if even
            else "Each replica needs a GPU: add GPUs or hosts.",
        )
    return smallest // on_each


def _over_hosts(group: Members, each: int, free: Mapping[str, Sequence[str]]) -> list[tuple[Place, ...]]:
    """Replicas that span hosts: all free GPUs of each."""
    counts = {len(devices) for devices in free.values()}
    here = min(counts)
    if len(counts) > 1 or each % here:
        listed = ", ".join(f"{name} {len(devices)}" for name, devices in free.items())
        raise InputError(
            f"a replica of {each} GPUs cannot be made of whole hosts with {listed} free GPUs",
            where=group.where,
            hint="Give each host as many GPUs, and each replica a multiple of that.",
        )
    span = each // here
    return [
        tuple(Place(host, tuple(free[host.name])) for host in group.hosts[start : start + span])
        for start in range(0, len(group.hosts) - span + 1, span)
    ]


def with_routers(services: Sequence[Service], hosts: Sequence[Host]) -> tuple[Service, ...]:
    """The services with their routers: on each of `hosts`, the group [router].

    Where the group is empty, a service with several replicas has one on the cluster's head.
    """
    head = services[0].replicas[0].head
    used_ports: set[tuple[str, int]] = set()

    def free(host: Host, port: int) -> int:
        while (host.name, port) in used_ports:
            port += 1
        used_ports.add((host.name, port))
        return port

    routed = []
    for service in services:
        router_hosts = hosts or ([head] if len(service.replicas) > 1 else [])
        routers = tuple(
            Router(
                host,
                port=free(host, service.settings.router_port),
                metrics_port=free(host, service.settings.router_metrics_port),
            )
            for host in router_hosts
        )
        routed.append(replace(service, routers=routers))
    return tuple(routed)
