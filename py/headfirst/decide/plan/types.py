"""The plan: every decision of a deployment, made once and only carried out afterwards.

Bytes are plain integers; addresses are IPv4 strings; `command` and `docker_run` are argument lists.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from ansible_collections.headfirst.serving.plugins.module_utils import weight_sources
from pydantic import Field, PlainSerializer

from headfirst.decide.cluster.settings import FetchMode, KvCarrier, Role
from headfirst.decide.containers.blanks import Text
from headfirst.decide.containers.spec import Container, Runtime
from headfirst.decide.engines.base import MemoryFraction
from headfirst.decide.engines.host_memory import Lever
from headfirst.decide.frozen import Frozen
from headfirst.decide.model.task import Task

_TERMS = {
    "outside_engine": "CUDA context and NCCL",
    "outside_mem_fraction_static": "outside --mem-fraction-static",
    "outside_gpu_memory_utilization": "outside --gpu-memory-utilization",
}


class Fit(Frozen):
    """Memory per GPU, term by term (see plan/sizing/fit.py for the formula and its source)."""

    fits: bool | None  # None: the GPUs' memory is not known, or the engine runs on CPUs
    uncertain: bool = False  # it does not fit by the estimates, which the engine measures at its start
    reason: str
    gpu_memory_bytes: int | None = None
    weight_bytes_total: int
    weight_bytes_per_rank: int
    draft_bytes_per_rank: int = Field(default=0, exclude_if=operator.not_)  # of these, of a draft model
    # Weights of a rank that stay in the host's memory.
    offloaded_bytes_per_rank: int = Field(default=0, exclude_if=operator.not_)
    reserved_bytes: int = 0
    static_fraction: float | None = None
    kv_bytes_per_token: int = 0
    # Of a request of the longest length, in layers that keep no token for ever.
    state_bytes_per_request: int = 0
    kv_pool_bytes: int | None = None
    kv_tokens: int | None = None  # of one rank
    kv_tokens_of_replica: int | None = None  # of all groups that keep requests of their own
    context: int  # tokens of a request that the arguments and the model allow
    longest_request: int | None = None  # tokens that fit, at most `context`
    terms: dict[str, int] = {}
    estimates: list[str] = []  # names of `terms`
    memory_fraction: MemoryFraction | None = None
    # At a time, where an argument or the states that requests keep limit them.
    requests: int | None = Field(default=None, exclude=True)
    # The argument that lowers `context`, where the engine ends at start as it is; `context_given`: it is set.
    context_flag: str | None = Field(default=None, exclude=True)
    context_given: bool = Field(default=False, exclude=True)

    @property
    def shorter(self) -> list[str]:
        """The argument and the longest request that fits, where the engine ends at start with what is set."""
        if self.context_flag is None or not self.longest_request:
            return []
        return [self.context_flag, str(max(1, self.longest_request // 1024) * 1024)]

    @property
    def figures(self) -> dict[str, float]:
        """What a start measures too, by the names of decide/diagnose/measured.py; none for CPUs."""
        if self.gpu_memory_bytes is None:
            return {}
        graphs = sum(size for term, size in self.terms.items() if "graphs" in term)
        sizes = {"weights_gib": self.weight_bytes_per_rank / 2**30, "graphs_gib": graphs / 2**30}
        return {**sizes, "kv_tokens": self.kv_tokens or 0}

    def title(self, term: str) -> str:
        """The name of one of `terms`, for people."""
        name = _TERMS.get(term, term.replace("_", " "))
        return name + (" (estimated)" if term in self.estimates else "")


class CacheFolder(Frozen):
    """A folder in the ranks' containers for a KV cache."""

    path: str
    host_path: str | None  # the folder of the host that is mounted there; None: inside the container
    limit: str  # how large it becomes; "": until the disk is full


class HostMemory(Frozen):
    """What the ranks of a replica keep in memory on each of its hosts (see plan/host/memory.py), in bytes.

    Their processes and the page cache are not in it.
    """

    bytes: int
    terms: dict[str, int]  # by purpose
    unknown: list[str]  # purposes whose bytes are not known
    shared_bytes: int  # of these, in /dev/shm
    keeps_free_bytes: int  # that the engine leaves of the host
    lowered: bool  # the engine takes less where the host has less
    folders: list[CacheFolder]
    reason: str
    lever: Lever | None = Field(default=None, exclude=True)

    @property
    def required_bytes(self) -> int:
        """What the host must have for certain."""
        return 0 if self.lowered else self.bytes


class Rate(Frozen):
    """What the slowest link, disk or processor of its kind does, and how that is known."""

    what: Literal["download", "network", "disk", "processor"]
    bytes_per_second: float
    text: str  # as a user reads it: `25 Gbit/s at node2`, `64 cores`
    known: Literal["given", "measured", "assumed"]


class WeightsTime(Frozen):
    """How long the weights take until every node has proven its copy (see plan/weights/duration.py)."""

    seconds: float
    stages: dict[str, float]  # seconds of each stage alone: fetch, broadcast, convert or verify, disk
    bottleneck: str  # the stage that takes longest
    reason: str
    documented_seconds: float  # download, convert on the head, copy to one node after the other
    own_lines_seconds: float | None  # where nodes that have lines of their own fetch together
    rates: list[Rate]


class WeightsShare(Frozen):
    """What one host gets of a checkpoint whose layers are divided among the hosts, in bytes at most."""

    host: str
    layers: str  # the hidden ones that it serves, as 0-30
    source_bytes: int
    served_bytes: int


class WeightsMember(Frozen):
    """A host that has the weights of a service."""

    host: str
    addresses: list[str]  # between which the weights go, one for each interface
    fetches: bool  # may ask the hub, hence has its client and token
    layers: str  # the hidden ones that it needs, as 0-30; "" where every host needs all of them


class Weights(Frozen):
    """Where the checkpoint comes from, where every node stores it, and what it needs on disk and in time."""

    model: str
    source: weight_sources.Name
    revision: str | None
    directory: str  # folder that the engine serves from, the same on every node
    source_bytes: int
    served_bytes: int
    keep_fp8: bool  # the source stays beside the converted checkpoint
    disk_bytes: int  # the most that is stored on a node at a time
    placement: Literal["brought", "staged", "in_place"]  # see plan/weights/placement.py
    placement_reason: str
    warm_cache: Literal["whole", "part", "none"]  # read into the page cache before the ranks start
    warm_reserve_bytes: int  # of a node's memory, left to its ranks
    warm_reason: str
    fetch: FetchMode  # who fetches from a hub
    connections: int  # for files, from each node to the one before
    encrypt: bool  # TLS between the nodes
    # The head first; each receives from the one before it. The first one that has all of it gives it.
    members: list[WeightsMember]
    time: WeightsTime
    hidden_layers: int
    # By host; left out of JSON where every host needs everything.
    shares: list[WeightsShare] = Field(default_factory=list, exclude_if=operator.not_)


class NodeNetwork(Frozen):
    """How a rank finds the others (see plan/host/network.py). None: the engine and NCCL choose."""

    nic: str | None = None  # GLOO_SOCKET_IFNAME, and NCCL_SOCKET_IFNAME with = in front
    hca: str | None = None  # NCCL_IB_HCA
    ib_gid_index: int | None = None  # NCCL_IB_GID_INDEX
    host_ip: str  # the rank's own address
    reasons: list[str]


class CompileCache(Frozen):
    """What a rank compiled, for the next start: `name` of a folder on the host, the engine's variables."""

    name: str
    environment: dict[str, str]


class Node(Frozen):
    """One node's rank: the container that runs there, to the last flag.

    A new container gets `compile_cache` beside `container`; one that runs keeps what it has.
    """

    host: str
    address: str
    rank: int
    gpu_devices: list[str] | None  # by index or UUID; None: all GPUs of the host
    network: NodeNetwork
    # That the rank takes beside those of its replica.
    more_ports: list[int] = Field(default_factory=list, exclude_if=operator.not_)
    container: Container
    compile_cache: CompileCache | None = Field(default=None, exclude_if=operator.not_)
    docker_run: list[str]


class ChosenArgument(Frozen):
    """An engine argument that a preset added; `value` is "" for a flag without one."""

    flag: str
    value: str
    reason: str
    source: str  # the page that recommends it

    @classmethod
    def each(cls, arguments: Mapping[str, str], reason: str, source: str) -> list[ChosenArgument]:
        """Arguments that have one reason and one source."""
        return [cls(flag=flag, value=text, reason=reason, source=source) for flag, text in arguments.items()]


class Companion(Frozen):
    """What a service fetches beside its model: where it comes from, and its folder on every node."""

    name: str
    source: weight_sources.Name
    id: str  # hub id, or a folder on the head
    directory: str
    revision: str | None = Field(default=None, exclude_if=operator.not_)

    @property
    def from_hub(self) -> bool:
        return self.source in weight_sources.HUBS

    @property
    def seconds(self) -> float | None:
        """Until every node has proven its copy; None: not estimated."""
        return None

    @property
    def disk_bytes(self) -> int:
        """Of each node; 0 where it is not known, or small."""
        return 0


class Adapter(Companion):
    """A LoRA adapter; `name` is its name in the API."""

    rank: int | None = None  # the largest of its matrices; null where it was not readable


class DraftModel(Companion):
    """A model that drafts tokens for the service's; `name` is the last part of its id."""

    kind: str  # eagle | eagle3 | mtp | dflash | dspark | standalone; "" where it was not read
    described_by: str  # as PlannedService.model_described_by; "" where it was not read
    source_bytes: int | None = None
    time: WeightsTime | None = None  # after the model's

    @property
    def seconds(self) -> float | None:
        return self.time.seconds if self.time else None

    @property
    def disk_bytes(self) -> int:
        return self.source_bytes or 0


# Environment of which no output of a plan has the values.
SecretEnv = Annotated[
    dict[str, str],
    PlainSerializer(lambda variables: dict.fromkeys(variables, "…"), return_type=dict[str, str]),
    Field(default_factory=dict, exclude_if=operator.not_, repr=False),
]


class PlannedReplica(Frozen):
    """One copy of a service; `role`: it computes prompts or answers only."""

    index: int
    role: Role | None = Field(default=None, exclude_if=operator.not_)
    transfer_port: int | None = Field(default=None, exclude_if=operator.not_)  # of the KV cache
    # What routers need of it beside its address: fields of a worker in smg's API.
    worker: dict[str, Any] = Field(default_factory=dict, exclude_if=operator.not_)
    engine_port: int
    dist_port: int
    rendezvous_ports: list[int]  # of the head; every rank connects to them, and a message may run code there
    engine_url: str
    nodes: list[Node]
    secret_env: SecretEnv  # what container.env_file of its ranks holds


class Readiness(Frozen):
    """When a replica serves: rank 0 answers 200 at `path`, then a POST of `probe_body` to `probe_path`.

    Both carry the API key.
    """

    path: str
    probe_path: str
    probe_body: dict[str, Any]
    answer: list[str | int]  # keys and indices of what the probe's answer must have
    start_seconds: int  # until then it must serve
    hang_seconds: int | None  # without an answer at `path` it hangs; None: `path` computes nothing
    silence_seconds: int  # without a computed token or an answer, until all ranks are started again


class ScheduledRank(Frozen):
    """One rank as a host runs it that a scheduler chooses: what only that host has is blank."""

    entrypoint: str | None
    command: list[Text]
    environment: dict[str, Text]


class Scheduled(Frozen):
    """A replica on hosts that a scheduler such as Slurm or Kubernetes chooses."""

    gpus: int  # of each host
    nic: str | None  # the interface that holds the ranks' addresses
    rdma: bool
    ranks: list[ScheduledRank]
    notes: list[str]


class Standby(Frozen):
    """A replica as it is when a spare has the place of the host of rank `replaces`."""

    spare: str
    address: str  # of the spare
    replaces: int
    after_seconds: int  # that the host stays away
    replica: PlannedReplica


class PlannedRouter(Frozen):
    """What spreads the requests of a service over its replicas; `url` is what clients use. No secrets."""

    host: str
    address: str
    port: int
    metrics_port: int
    url: str
    policy: str
    container: Container
    docker_run: list[str]
    env_file: dict[str, Text]  # what container.env_file holds
    fixed_command: list[str]  # of the container where no supervisor registers the replicas


class Sized(Frozen):
    """Replicas that are alike: how each is divided among its ranks, its memory and its arguments."""

    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int  # groups of these ranks that each serve requests of their own
    attention_data_parallel: int  # groups of tensor ranks, each with a KV cache of its own
    expert_parallel: int  # ranks among which whole experts are spread; 1: each expert is divided
    world_size: int  # of each replica
    layout_reason: str
    layouts_rejected: list[str]  # a sentence each
    fit: Fit
    # Left out of JSON where the ranks keep nothing there.
    host_memory: HostMemory | None = Field(default=None, exclude_if=operator.not_)
    # The following lists are left out of JSON where there is nothing.
    chosen_arguments: list[ChosenArgument] = Field(default_factory=list, exclude_if=operator.not_)
    # What a preset would add and why it does not, a sentence each.
    arguments_left_out: list[str] = Field(default_factory=list, exclude_if=operator.not_)

    @property
    def layout(self) -> str:
        """The parallel sizes, for people: TP 8 × PP 1, attention DP 8, EP 8."""
        text = f"TP {self.tensor_parallel} × PP {self.pipeline_parallel}"
        text += f" × DP {self.data_parallel}" if self.data_parallel > 1 else ""
        text += f", attention DP {self.attention_data_parallel}" if self.attention_data_parallel > 1 else ""
        return text + (f", EP {self.expert_parallel}" if self.expert_parallel > 1 else "")


_CARRIERS: dict[KvCarrier, str] = {"mooncake": "Mooncake", "nixl": "NIXL"}


class Capability(Frozen):
    """Whether answers have a part of their own for it; `reason`: the engine's parser, or why none."""

    state: Literal["on", "off"]
    reason: str


class Capabilities(Frozen):
    """What clients can ask of a service (see plan/capabilities.py)."""

    tools: Capability
    reasoning: Capability
    context_tokens: int | None  # of the longest request that is served
    full_requests: int | None  # of that length, which the KV caches of all replicas hold at once

    def agrees(self, running: Capabilities) -> bool:
        """Whether it can be so where arguments alone prove `running`."""
        pairs = [(self.tools, running.tools), (self.reasoning, running.reasoning)]
        same = all(one == other or "on" not in (one.state, other.state) for one, other in pairs)
        return same and running.context_tokens in (None, self.context_tokens)


class PlannedTransfer(Frozen):
    """The KV cache on its way from prefill to decode replicas (see plan/transfer.py)."""

    carrier: KvCarrier
    rdma: bool | None  # whether RDMA connects all hosts; None: not known
    one_host: bool  # it stays there
    bytes_per_token: int | None  # that the hosts of a decode replica receive; None: not known
    reasons: list[str]  # a sentence each: when dividing pays, and what the links carry

    @property
    def way(self) -> str:
        """What carries it, over which network."""
        network = {True: "over RDMA", False: "over TCP", None: "over RDMA or TCP (not known)"}[self.rdma]
        return f"{_CARRIERS[self.carrier]} {'inside the host' if self.one_host else network}"


class Rehearsal(Frozen):
    """The ranks as they start before the weights are there: with dummies (see plan/rehearsal.py)."""

    not_rehearsed: str = ""  # why they do not, a sentence
    in_up: bool  # `deploy up` does it while the weights come
    strict: bool  # and ends where it fails
    left_out: list[str] = []  # what they start without, a sentence each
    seconds: int  # after which they end by themselves
    # Their containers differ from those that serve; `deploy rehearse` runs them.
    replicas: list[PlannedReplica] = Field(default_factory=list, exclude=True)


class PlannedService(Sized):
    """One model served under one name by one engine.

    Where prefill and decode are divided, the sizes are those of the decode replicas, and `prefill` has those
    of the others.
    """

    name: str | None  # the group in the inventory; None in the short form
    model: str
    precision: str  # of the checkpoint's weights, every scheme of a mixture: BF16, FP8+NVFP4
    model_described_by: str  # folder | hub | catalogue, and why when it is not the best one
    served_model_name: str
    engine: str
    engine_version: str
    engine_described_by: str  # the image, or the snapshot of a version
    engine_cuda: str  # the CUDA version inside the image, "" where it is not known or not used
    device: str  # cuda | cpu
    # Programs that the image must have beside the engine; left out of JSON where there are none.
    image_programs: list[str] = Field(default_factory=list, exclude_if=operator.not_)
    task: Task
    prefill: Sized | None = Field(default=None, exclude_if=operator.not_)
    transfer: PlannedTransfer | None = Field(default=None, exclude_if=operator.not_)
    convert_to_bf16: bool
    convert_reason: str
    trust_remote_code: bool  # the engine runs Python code of the model's repository
    trust_reason: str
    weights: Weights
    cache_dir: str | None  # for code that the engine compiles; on every host
    readiness: Readiness
    drain_seconds: int  # for the requests that a replica behind a router has, before its ranks stop
    config_file: dict[str, Text]  # what the file with the keys holds: values in JSON, which is YAML
    # Where the inventory states that the key is, on the controller; None: it is generated.
    api_key_file: str | None = Field(default=None, exclude_if=operator.not_)
    capabilities: Capabilities
    # What parsers=auto would add to a service that runs without it (see plan/kept.py).
    kept_out: list[ChosenArgument] = Field(default_factory=list, exclude_if=operator.not_)
    replicas: list[PlannedReplica]
    rehearsal: Rehearsal
    scheduled: list[Scheduled]  # the same replicas, for hosts that are not in the inventory
    # Left out of JSON where clients ask the only replica.
    routers: list[PlannedRouter] = Field(default_factory=list, exclude_if=operator.not_)
    # The following lists are left out of JSON where there is nothing.
    # Of requests outside /v1, which routers do not pass on: /classify, /pooling.
    paths_outside_v1: list[str] = Field(default_factory=list, exclude_if=operator.not_)
    standbys: list[Standby] = Field(default_factory=list, exclude_if=operator.not_)
    adapters: list[Adapter] = Field(default_factory=list, exclude_if=operator.not_)
    draft_model: DraftModel | None = Field(default=None, exclude_if=operator.not_)
    # What would work where the model does not fit, a sentence each.
    alternatives: list[str] = Field(default_factory=list, exclude_if=operator.not_)
    # What would make it fail or slow, a sentence each, the one with the largest effect first.
    warnings: list[str] = Field(default_factory=list, exclude_if=operator.not_)
    # What a person should check, a sentence each.
    notes: list[str] = Field(default_factory=list, exclude_if=operator.not_)

    def __str__(self) -> str:
        return self.name or self.served_model_name

    @property
    def ranks(self) -> list[tuple[PlannedReplica, Node]]:
        """Every rank, with its replica."""
        return [(replica, node) for replica in self.replicas for node in replica.nodes]

    def sized(self, replica: PlannedReplica) -> Sized:
        """The sizes of one of its replicas."""
        return self.prefill if self.prefill and replica.role == "prefill" else self

    @property
    def pools(self) -> list[tuple[Sized, list[PlannedReplica]]]:
        """Replicas that are alike, with their sizes: all, or those of prefill and those of decode."""
        return [
            (sized, [replica for replica in self.replicas if self.sized(replica) is sized])
            for sized in (self.prefill, self)
            if sized
        ]

    @property
    def unfit(self) -> str | None:
        """Where the model does not fit into the memory of the GPUs: of which replicas, and why."""
        for sized, replicas in self.pools:
            if sized.fit.fits is False:
                role = replicas[0].role
                return f"The {role} replicas: {sized.fit.reason}" if role else sized.fit.reason
        return None

    @property
    def unfit_role(self) -> Role | None:
        """The replicas into whose GPUs it does not fit, where prefill and decode are divided."""
        return next((replicas[0].role for sized, replicas in self.pools if sized.fit.fits is False), None)

    @property
    def smallest_role(self) -> Role | None:
        """The replicas that hold the shortest requests, or none; None where prefill and decode are one."""
        longest = [(sized.fit.longest_request or 0 if sized.fit.fits else -1) for sized, _ in self.pools]
        return self.pools[longest.index(min(longest))][1][0].role

    @property
    def model_folders(self) -> list[str]:
        """Folders of checkpoints that the ranks load, on every host."""
        return [self.weights.directory, *([self.draft_model.directory] if self.draft_model else [])]

    @property
    def companions(self) -> list[Companion]:
        """What is fetched beside the model, in this order."""
        return [*self.adapters, *([self.draft_model] if self.draft_model else [])]

    @property
    def required_routers(self) -> list[PlannedRouter]:
        """The routers without which nobody answers: those over prefill and decode replicas."""
        return self.routers if self.transfer else []

    @property
    def urls(self) -> list[str]:
        """The addresses that clients use and that stay when replicas change."""
        return [router.url for router in self.routers] or [replica.engine_url for replica in self.replicas]


class Webui(Frozen):
    """The chat page; secrets are not part of the plan."""

    host: str
    address: str
    port: int
    url: str
    container: Container
    docker_run: list[str]
    env_file: dict[str, Text]  # what container.env_file holds, beside secret_env
    secret_env: SecretEnv


class MonitoringContainer(Frozen):
    """A container of monitoring: where it runs, and the address at which that host finds it."""

    host: str
    url: str
    path: str  # answers 200 when it is ready
    image_source: Literal["registry", "build"]
    container: Container


class Monitoring(Frozen):
    """Prometheus and Grafana on one host, and exporters on the ranks' hosts."""

    host: str
    prometheus_url: str  # as that host sees it
    grafana_url: str | None
    containers: list[MonitoringContainer]


class ProxiedService(Frozen):
    """A service behind the proxy: `servers` are ADDRESS:PORT."""

    name: str  # the group in the inventory; `api` in the short form
    path: str
    servers: list[str]
    # Paths of the engine outside /v1, and where they are asked: at the engines, as ADDRESS:PORT.
    paths: list[str] = Field(default_factory=list, exclude_if=operator.not_)
    engines: list[str] = Field(default_factory=list, exclude_if=operator.not_)


class Proxy(Frozen):
    """TLS and API keys with names, in front of the services and the chat page."""

    host: str
    addresses: list[str]
    port: int
    url: str
    tls: Literal["none", "files", "local-ca"]
    names: list[str]  # of the certificate
    services: list[ProxiedService]
    page: str  # ADDRESS:PORT, "" where there is no chat page
    metrics_address: str
    metrics_port: int
    # By host: ports that only the hosts of the cluster reach, since people come through the proxy.
    closed_ports: dict[str, list[int]]
    container: Container
    docker_run: list[str]


class HostDevices(Frozen):
    """What is set up for the devices of a host (see plan/host/devices.py)."""

    host: str
    driver: bool  # NVIDIA's driver and container toolkit
    rdma: bool
    reason: str


class Outbound(Frozen):
    """Through which proxies a host reaches what is outside of the cluster (see plan/host/outbound.py)."""

    host: str
    http_proxy: str | None
    https_proxy: str
    no_proxy: list[str]
    has_login: bool  # the proxies ask for one, which is no part of the plan


class RankPorts(Frozen):
    """How the ports of a host's ranks are closed to strangers (see plan/host/rank_ports.py)."""

    host: str
    slice: str | None  # of systemd, whose every port is closed; None: ports are closed by number
    served: list[int]  # ports of the slice that clients reach
    peers: list[str]  # addresses of other hosts' ranks, which reach every port of the slice
    closed: list[str]  # ports and ranges that are closed by number
    exposed: list[str]  # those that everybody reaches; of a host that was not asked, without rules by cgroup
    reason: str


class HostDisk(Frozen):
    """What the disk of a host must hold at most, for weights, images and logs."""

    host: str
    path: str
    bytes: int


class Verdict(Frozen):
    """Whether the models fit into the memory of the GPUs, and a sentence with the figure that decides it."""

    state: Literal["fits", "uncertain", "unfit", "unknown"]
    text: str


class Plan(Frozen):
    """What `deploy plan` prints, `deploy up` carries out and the tests assert."""

    cluster: str
    verdict: Verdict
    services: list[PlannedService]
    webui: Webui | None  # None: no service answers chats
    rank_ports: list[RankPorts]
    devices: list[HostDevices]  # of hosts on whose GPUs a service runs
    disks: list[HostDisk]  # of hosts that have weights
    # Left out of JSON where they are not there. Spares are hosts that have the weights and the image.
    monitoring: Monitoring | None = Field(default=None, exclude_if=operator.not_)
    spares: list[str] = Field(default_factory=list, exclude_if=operator.not_)
    proxy: Proxy | None = Field(default=None, exclude_if=operator.not_)
    outbound: list[Outbound] = Field(default_factory=list, exclude_if=operator.not_)
    container_runtime: Runtime = Field(default="docker", exclude_if="docker".__eq__)
    notes: list[str] = Field(default_factory=list, exclude_if=operator.not_)  # on variables that nothing uses

    def service(self, name: str | None) -> PlannedService:
        """The service with this name."""
        return next(service for service in self.services if service.name == name)

    @property
    def containers(self) -> list[Container]:
        """Every container: those of the ranks, routers, chat page, proxy and monitoring."""
        ranks = [node.container for service in self.services for _, node in service.ranks]
        routers = [router.container for service in self.services for router in service.routers]
        front = [part.container for part in (self.webui, self.proxy) if part]
        monitors = self.monitoring.containers if self.monitoring else []
        return [*ranks, *routers, *front, *(monitor.container for monitor in monitors)]
