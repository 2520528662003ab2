"""A cluster: the hosts of one inventory, and the services, replicas and ranks on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import DEMO_MODELS

from headfirst.common import container_names as names
from headfirst.common.errors import InputError
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.cluster.settings import OF_ROLE, ClusterSettings, Role, ServiceSettings
from headfirst.decide.containers.answers import Answers
from headfirst.decide.hardware.facts import CgroupObstacle, FolderFacts, NetworkFacts
from headfirst.decide.model.adapter import AdapterConfig
from headfirst.decide.model.checkpoint import Checkpoint


@dataclass(frozen=True)
class OutboundProxy:
    """Proxies between a host and what is outside of the cluster: URLs, and USER:PASSWORD as their login."""

    http: str | None
    https: str
    exceptions: tuple[str, ...]
    login_file: str | None = None
    login: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Host:
    """One server. `address` is the IPv4 address the ranks use among themselves; rates are bytes a second."""

    name: str
    address: str
    login: HostAccess
    gpus: int | None
    gpu: str | None
    nic: str | None
    hca: str | None
    ib_gid_index: int | None
    network_rate: int | None
    disk_rate: int | None
    cpu_cores: str | None
    lab: bool
    lab_memory: str | None
    lab_cpus: float | None
    firewall: bool  # host_tuning_firewall
    closed_ports: frozenset[int]  # host_tuning_closed_ports
    gpu_memory_bytes: int | None = None  # of its smallest GPU
    gpu_capability: tuple[int, int] | None = None
    # Facts that only the host itself reports; None until it was asked (deployment/hosts/probe.py).
    link_rate: int | None = None  # what the driver of `nic` reports
    cores: int | None = None
    memory_bytes: int | None = None
    network: NetworkFacts | None = None
    weights_addresses: tuple[str, ...] = ()  # one for each interface; none: `address`
    weights_port: int | None = None  # of role weights
    weights_dir_shared: bool = False
    model_folder: FolderFacts | None = None  # of the first service here that may serve it where it is
    cgroup_obstacle: CgroupObstacle | None = None  # to rules by the cgroup of a socket; "": none
    outbound: OutboundProxy | None = None
    lacks: frozenset[str] = frozenset()  # roles without which its devices do not work: nvidia_driver, rdma


@dataclass(frozen=True)
class Place:
    """Where a rank runs: a host, and its GPUs by index or UUID; None: all of them."""

    host: Host
    devices: tuple[str, ...] | None = None

    @property
    def gpus(self) -> int | None:
        """How many GPUs the rank has; None: not known."""
        return self.host.gpus if self.devices is None else len(self.devices)


@dataclass(frozen=True)
class Replica:
    """One copy of a service: its ranks, the head first, and the head's ports.

    `role`: it computes prompts or answers only; `transfer_port` is for the KV cache between the two.
    """

    index: int
    places: tuple[Place, ...]
    engine_port: int
    dist_port: int
    role: Role | None = None
    transfer_port: int | None = None

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Hosts by node rank."""
        return tuple(place.host for place in self.places)

    @property
    def head(self) -> Host:
        """The host of rank 0."""
        return self.places[0].host

    @property
    def url(self) -> str:
        """Where rank 0 serves its API, as the hosts see it."""
        return f"http://{self.head.address}:{self.engine_port}"


@dataclass(frozen=True)
class Router:
    """Spreads the requests of one service over its replicas."""

    host: Host
    port: int
    metrics_port: int

    @property
    def url(self) -> str:
        """Where clients find the service's API."""
        return f"http://{self.host.address}:{self.port}"


@dataclass(frozen=True)
class Service:
    """One model served under one name by one engine. `name` is its group; None in the short form."""

    name: str | None
    settings: ServiceSettings
    replicas: tuple[Replica, ...]
    routers: tuple[Router, ...] = ()  # none: clients ask the only replica
    # Names of the variables that the inventory sets for it, with their places.
    given: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    # Names of its hosts in the groups [prefill] and [decode].
    role_hosts: Mapping[Role, frozenset[str]] = field(default_factory=dict, hash=False)
    # LoRA adapters by name, of those that were read.
    adapters: Mapping[str, AdapterConfig] = field(default_factory=dict, hash=False)
    draft: Checkpoint | None = field(default=None, hash=False)  # draft_model, where it was read
    answers: Answers | None = field(default=None, hash=False)  # what its image answered, where it was asked
    # Command lines of the containers of rank 0 that are on its hosts, where these were asked.
    running: tuple[tuple[str, ...], ...] = ()
    # Environment of the ranks that is in no plan: engine_env_file, and secrets of engine_env. By role, what
    # the replicas of that role have beside it.
    secret_env: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    role_secret_env: Mapping[Role, Mapping[str, str]] = field(default_factory=dict, hash=False, repr=False)

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses that clients use and that stay when replicas change."""
        return tuple(endpoint.url for endpoint in self.routers or self.replicas)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Every host of the service once, in the order of the replicas."""
        return tuple({host.name: host for replica in self.replicas for host in replica.hosts}.values())

    @property
    def roles(self) -> tuple[Role | None, ...]:
        """What its replicas do; (None,) where each one computes prompts and answers."""
        return tuple(dict.fromkeys(replica.role for replica in self.replicas))

    def of_role(self, role: Role | None) -> Service:
        """The service as if it had the replicas of this role only, with their settings."""
        if role is None:
            return self
        given = dict(self.given)
        for name in OF_ROLE:
            given[name] = given.get(f"{role}_{name}", given.get(name))
        return replace(
            self,
            settings=self.settings.of_role(role),
            secret_env={**self.secret_env, **self.role_secret_env.get(role, {})},
            replicas=tuple(replica for replica in self.replicas if replica.role == role),
            given=given,
        )

    @property
    def meeting(self) -> list[tuple[Host, ...]]:
        """Hosts whose ranks connect to each other: those of a replica; all where prefill and decode are
        divided."""
        groups = [self.hosts] if self.roles[0] else [replica.hosts for replica in self.replicas]
        return [hosts for hosts in groups if len(hosts) > 1]

    @property
    def model_id(self) -> str:
        """The model as the inventory names it."""
        return self.settings.model or DEMO_MODELS[0]

    @property
    def served_model_name(self) -> str:
        """The model's name in the API."""
        return self.settings.served_model_name or self.model_id.rstrip("/").rpartition("/")[2]

    def container(self, replica: Replica) -> str:
        """Name of the container of each rank of a replica."""
        return names.engine(self.name, replica.index)

    def __str__(self) -> str:
        return self.name or self.served_model_name


@dataclass(frozen=True)
class Cluster:
    """The hosts of one inventory and the services on them."""

    name: str
    inventories: tuple[Path, ...]
    settings: ClusterSettings
    services: tuple[Service, ...]
    webui: Host
    monitoring: Host | None = None
    spares: tuple[Host, ...] = ()  # have weights and image, and run no rank
    notes: tuple[str, ...] = ()  # what the inventory states that nothing here uses
    webui_secret_env: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    # Passwords in URLs of settings, of the roles' too, and secret environment: kept out of logs and messages.
    hidden: frozenset[str] = field(default=frozenset(), repr=False)
    # Names of all variables in the inventory, with their places.
    given: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    limit: frozenset[str] | None = None  # names of the hosts that a run acts on; None: all
    # Of the files that it was read from: path, time of the last change (ns) and bytes.
    files: frozenset[tuple[str, int, int]] = field(default=frozenset(), compare=False, repr=False)

    @property
    def ranks(self) -> tuple[Host, ...]:
        """Every host that runs a rank, once, in the order of the services."""
        return tuple({host.name: host for service in self.services for host in service.hosts}.values())

    @property
    def nodes(self) -> tuple[Host, ...]:
        """Every host that has what a rank needs: those that run ranks, and the spares."""
        return (*self.ranks, *self.spares)

    @property
    def head(self) -> Host:
        """The host that keeps what belongs to the whole cluster: the head of the first replica."""
        return self.services[0].replicas[0].head

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Every host once, ranks first."""
        more = (self.webui, *self.router_hosts, *([self.monitoring] if self.monitoring else []))
        return tuple({host.name: host for host in (*self.nodes, *more)}.values())

    @property
    def shared_hosts(self) -> tuple[Host, ...]:
        """Hosts of what belongs to all services: credentials, chat page, proxy, monitoring."""
        return (self.head, self.webui, *([self.monitoring] if self.monitoring else []))

    @property
    def limited_hosts(self) -> tuple[Host, ...]:
        """The hosts that a run acts on, in the order of `hosts`."""
        return tuple(host for host in self.hosts if self.limit is None or host.name in self.limit)

    def limited(self, names: Iterable[str] | None) -> Cluster:
        """The same cluster for a run that acts on the hosts of these names only; None: on all."""
        return replace(self, limit=None if names is None else frozenset(names))

    @property
    def router_hosts(self) -> tuple[Host, ...]:
        """Every host that runs a router, once."""
        routers = [router for service in self.services for router in service.routers]
        return tuple({router.host.name: router.host for router in routers}.values())

    @property
    def lab_hosts(self) -> tuple[Host, ...]:
        """Hosts that are nodes on this machine."""
        return tuple(host for host in self.hosts if host.lab)

    @property
    def webui_url(self) -> str:
        """Where the chat page is, as the hosts see it."""
        return f"http://{self.webui.address}:{self.settings.webui_port}"

    @property
    def has_tls(self) -> bool:
        """Whether people reach the cluster over TLS."""
        return self.settings.tls != "none"

    @property
    def has_proxy(self) -> bool:
        """Whether a proxy is in front of the API and the chat page."""
        return self.has_tls if self.settings.proxy is None else self.settings.proxy

    @property
    def proxy_port(self) -> int:
        """Where the proxy listens, on the host of the chat page."""
        return self.settings.proxy_port or (443 if self.has_tls else 80)

    @property
    def proxy_names(self) -> list[str]:
        """Names and addresses at which users reach the proxy; the first one is printed."""
        return list(dict.fromkeys([*self.settings.tls_names, *self.proxy_addresses]))

    @property
    def proxy_addresses(self) -> list[str]:
        """Addresses of its host at which the proxy listens."""
        return [str(address) for address in self.settings.proxy_addresses] or [self.webui.address]

    @property
    def proxy_url(self) -> str:
        """Where people reach the chat page and the API through the proxy."""
        scheme, usual = ("https", 443) if self.has_tls else ("http", 80)
        end = "" if self.proxy_port == usual else f":{self.proxy_port}"
        return f"{scheme}://{self.proxy_names[0]}{end}"

    def api_path(self, service: Service) -> str:
        """Path of a service at the proxy: the only one has the usual path."""
        return "/v1" if len(self.services) == 1 else f"/services/{service.name}/v1"

    def service(self, name: str | None) -> Service:
        """The service called so, or the only one. InputError names the services otherwise."""
        if name is None and len(self.services) == 1:
            return self.services[0]
        listed = ", ".join(map(str, self.services))
        if name is None:
            raise InputError("the cluster has several services", hint=f"Name one: --service NAME ({listed}).")
        called = {service.served_model_name: service for service in self.services}
        called |= {service.name: service for service in self.services if service.name}
        if name not in called:
            raise InputError(f"no service is called {name}", hint=f"Services: {listed}.")
        return called[name]

    def whole_service(self, chosen: str | None) -> Service | None:
        """The service that `--service` names; None without it. InputError where it names a replica."""
        if chosen is None:
            return None
        name, replica, _ = chosen.partition("/")
        if replica:
            raise InputError(
                f"--service {chosen} names a replica, and this verb acts on whole services",
                hint=f"Write --service {name or 'NAME'}.",
            )
        return self.service(name)

    def of_service(self, service: Service, *shared: Host) -> Cluster:
        """The same cluster for a run on the hosts of one service, of its routers, the spares and `shared`.

        InputError where its limit leaves none of them.
        """
        routers = (router.host for router in service.routers)
        names = {host.name for host in (*service.hosts, *routers, *self.spares, *shared)}
        names &= {host.name for host in self.limited_hosts}
        if not names:
            raise InputError(f"--limit leaves no host of {service}", hint="Leave --limit or --service out.")
        return self.limited(names)

    def matches(self, chosen: str | None, service: str | None, replica: int) -> bool:
        """Whether a replica is one of those that `--service` names: NAME, NAME/REPLICA, or /REPLICA."""
        if chosen is None:
            return True
        name, _, number = chosen.partition("/")
        if number and not number.isdecimal():
            raise InputError(f"{chosen} names no replica", hint="Write NAME/0, for example.")
        return (not name or self.service(name).name == service) and (not number or int(number) == replica)

    def chosen(self, chosen: str | None) -> list[tuple[Service, Replica]]:
        """The replicas that `--service` names, all without it. InputError where there is none."""
        replicas = [
            (service, replica)
            for service in self.services
            for replica in service.replicas
            if self.matches(chosen, service.name, replica.index)
        ]
        if not replicas:
            listed = ", ".join(
                f"{service}/{replica.index}" for service in self.services for replica in service.replicas
            )
            raise InputError(f"no replica is called {chosen}", hint=f"Replicas: {listed}.")
        return replicas

    def replaced(self, change: Callable[[Host], Host]) -> Cluster:
        """The same cluster with other facts of its hosts."""
        known = {host.name: change(host) for host in self.hosts}
        services = tuple(
            replace(
                service,
                replicas=tuple(
                    replace(
                        replica,
                        places=tuple(replace(place, host=known[place.host.name]) for place in replica.places),
                    )
                    for replica in service.replicas
                ),
                routers=tuple(replace(router, host=known[router.host.name]) for router in service.routers),
            )
            for service in self.services
        )
        return replace(
            self,
            services=services,
            webui=known[self.webui.name],
            spares=tuple(known[host.name] for host in self.spares),
            monitoring=known[self.monitoring.name] if self.monitoring else None,
        )
