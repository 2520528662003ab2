"""A cluster: the hosts of one inventory, their ranks, and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headfirst.cluster.facts import NetworkFacts
from headfirst.cluster.settings import ClusterSettings

DEMO_MODEL = "headfirst-demo"


@dataclass(frozen=True)
class Become:
    """How commands on a host become root: sudo, as Ansible's plugin of that name would call it."""

    user: str
    command: str
    flags: str
    password: str | None = field(repr=False)


@dataclass(frozen=True)
class Login:
    """How Ansible reaches a host: what its ssh plugin takes from variables, environment and ansible.cfg.

    None leaves the choice to ssh's own configuration. `options` stand before what the other fields say on
    ssh's command line, `more_options` after it: of two values ssh takes the first.
    """

    host: str
    port: int | None
    user: str | None
    private_key: str | None
    password: str | None = field(repr=False)
    options: tuple[str, ...]
    more_options: tuple[str, ...]
    become: Become | None
    needs_sshpass: bool
    ssh_args: str | None  # Ansible's ssh_args where the user has set them
    obstacle: str | None  # why only Ansible can use it: another connection plugin, another become method


@dataclass(frozen=True)
class Host:
    """One server. `address` is the IPv4 address the ranks use among themselves; rates are bytes a second."""

    name: str
    address: str
    login: Login
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
    # Facts that only the host itself knows; None until it was asked (deployment/probe.py).
    link_rate: int | None = None  # what the driver of `nic` says
    cores: int | None = None
    memory_bytes: int | None = None
    gpu_memory_bytes: int | None = None  # of its smallest GPU
    gpu_capability: tuple[int, int] | None = None
    network: NetworkFacts | None = None
    lacks: frozenset[str] = frozenset()  # roles without which its devices do not work: nvidia_driver, rdma


@dataclass(frozen=True)
class Cluster:
    """The head first, then the workers in inventory order: the position is the rank."""

    name: str
    inventories: tuple[Path, ...]
    settings: ClusterSettings
    head: Host
    workers: tuple[Host, ...]
    webui: Host
    notes: tuple[str, ...] = ()  # what the inventory says that nothing here uses
    # Passwords in URLs of settings, of the roles' too; they are kept out of logs and messages.
    url_credentials: frozenset[str] = frozenset()
    # Names of all variables in the inventory, with their places.
    given: Mapping[str, str | None] = field(default_factory=dict, hash=False)

    @property
    def ranks(self) -> tuple[Host, ...]:
        """Hosts by node rank."""
        return (self.head, *self.workers)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Every host once, ranks first."""
        return self.ranks if self.webui in self.ranks else (*self.ranks, self.webui)

    @property
    def lab_hosts(self) -> tuple[Host, ...]:
        """Hosts that are nodes on this machine."""
        return tuple(host for host in self.hosts if host.lab)

    @property
    def engine_url(self) -> str:
        """Where rank 0 serves its API, as the hosts see it."""
        return f"http://{self.head.address}:{self.settings.engine_port}"

    @property
    def webui_url(self) -> str:
        """Where the chat page is."""
        return f"http://{self.webui.address}:{self.settings.webui_port}"

    @property
    def model_id(self) -> str:
        """The model as the inventory names it."""
        return DEMO_MODEL if self.settings.model_source == "demo" else self.settings.model

    @property
    def served_model_name(self) -> str:
        """The model's name in the API."""
        return self.settings.served_model_name or self.model_id.rstrip("/").rpartition("/")[2]
