"""The variables a person may write in an inventory: names, types, defaults. They are here only."""

from __future__ import annotations

import re
import shlex
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Any, Literal

from ansible_collections.headfirst.serving.plugins.module_utils import weight_sources
from pydantic import AfterValidator, BeforeValidator, Field

from headfirst.common.untrusted import finite_json
from headfirst.decide.cluster import values
from headfirst.decide.frozen import Frozen
from headfirst.decide.model.task import Task


def _words(value: Any) -> Any:
    """INI has strings and numbers: split a shell-quoted one into words. YAML's lists may have numbers."""
    if isinstance(value, str):
        return shlex.split(value)
    return (
        list(map(_text, value)) if isinstance(value, list) else [str(value)] if _is_number(value) else value
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _pairs(value: Any) -> Any:
    """`A=1 B=2`, a JSON object or a mapping to a mapping of strings."""
    if isinstance(value, str):
        if value.lstrip().startswith("{"):
            value = finite_json(value)
        else:
            words = shlex.split(value)
            if bad := [word for word in words if "=" not in word]:
                # What is no name may be a part of a secret.
                word = repr(bad[0]) if re.fullmatch("[A-Z_]+", bad[0]) else f"word {words.index(bad[0]) + 1}"
                raise ValueError(f"{word} is not of the form NAME=VALUE")
            names = [word.partition("=")[0] for word in words]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise ValueError(f"the name {twice} is there twice")
            value = dict(word.split("=", 1) for word in words)
    if not isinstance(value, dict):
        return value
    if other := next((key for key, item in value.items() if not isinstance(item, str | int | float)), None):
        raise ValueError(f"the value of {other} must be a text")
    return {str(key): str(item) for key, item in value.items()}


def _text(value: Any) -> Any:
    """Ansible reads `1.10` in an INI host line as a number; these variables are texts."""
    return str(value) if _is_number(value) else value


_RATE = re.compile(r"(\d{1,15}(?:\.\d+)?)([kmgt]?)(bit|byte)(?:/s)?", re.IGNORECASE)
_POWER = {"": 0, "k": 3, "m": 6, "g": 9, "t": 12}


def _rate(value: Any) -> Any:
    """`10gbit` or `500mbyte` a second to bytes a second; a bare b or B is refused: it is read as either."""
    match = _RATE.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("a rate is a number and a unit, such as 10gbit or 500mbyte (a second, k = 1000)")
    number, power, unit = match.groups()
    rate = round(float(number) * 10 ** _POWER[power.lower()] / (8 if unit.lower() == "bit" else 1))
    if rate == 0:
        raise ValueError("a rate must be more than zero")
    return rate


Words = Annotated[list[str], BeforeValidator(_words)]
Listed = Annotated[list[str], BeforeValidator(values.words)]  # with commas or spaces
Pairs = Annotated[dict[str, str], BeforeValidator(_pairs)]
Environment = Annotated[Pairs, AfterValidator(values.environment)]
EngineEnvironment = Annotated[Environment, AfterValidator(values.engine_environment)]
Text = Annotated[str, BeforeValidator(_text)]
HIGHEST_PORT = 65535
Port = Annotated[int, Field(ge=1, le=HIGHEST_PORT)]
# Ports of a container that may run as any user.
HighPort = Annotated[int, Field(ge=1024, le=HIGHEST_PORT)]
Count = Annotated[int, Field(ge=1, le=1024)]  # of replicas, or of GPUs of each
Rate = Annotated[int, BeforeValidator(_rate)]  # bytes a second
Bytes = Annotated[str, BeforeValidator(_text), AfterValidator(values.memory)]
ByteCount = Annotated[int, BeforeValidator(lambda value: values.memory_bytes(_text(value)))]
Addresses = Annotated[list[IPv4Address], BeforeValidator(values.words)]
Networks = Annotated[list[IPv4Network], BeforeValidator(values.words)]

FetchMode = Literal["auto", "head", "all"]
Role = Literal["prefill", "decode"]
"""What a replica does where prefill and decode are divided: docs/disaggregation.md."""
KvCarrier = Literal["nixl", "mooncake"]
# Settings of a service that its prefill or its decode replicas have of their own, as prefill_NAME.
OF_ROLE = (
    "replicas",
    "gpus_per_replica",
    "tensor_parallel",
    "pipeline_parallel",
    "engine_args",
    "engine_env",
)
RouterPolicy = Literal[
    "cache_aware",
    "round_robin",
    "random",
    "power_of_two",
    "least_load",
    "prefix_hash",
    "consistent_hashing",
]
Rehearse = Annotated[
    Literal["auto", "strict", "false"],
    BeforeValidator(lambda value: "false" if value is False else str(value).lower()),
]
Folder = Annotated[str, AfterValidator(values.data_folder)]
Image = Annotated[str, BeforeValidator(_text), AfterValidator(values.image)]
Volumes = Annotated[list[Annotated[str, AfterValidator(values.volume)]], BeforeValidator(_words)]
Adapters = Annotated[Pairs, AfterValidator(values.adapters)]
DraftModel = Annotated[Text, AfterValidator(values.draft_model)]
Hcas = Annotated[str, BeforeValidator(values.hcas), BeforeValidator(values.words)]
Cores = Annotated[str, BeforeValidator(values.cores), BeforeValidator(values.words)]
Devices = Annotated[Listed, AfterValidator(values.devices)]
ProxyUrl = Annotated[str, AfterValidator(values.proxy_url)]
Exceptions = Annotated[Listed, AfterValidator(values.proxy_exceptions)]
# Of Docker Hub the engine has mirrors: docker_engine_registry_mirrors.
_MIRRORS = {"china": {"ghcr.io": "ghcr.nju.edu.cn", "nvcr.io": "nvcr.m.daocloud.io"}}
_Mirror = Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]+(:\d+)?(/[a-z0-9._/-]+)?$")]
Mirrors = Annotated[
    dict[Annotated[str, Field(pattern=r"^(ghcr|nvcr)\.io$")], _Mirror],
    BeforeValidator(_pairs),
    BeforeValidator(lambda value: _MIRRORS.get(value, value) if isinstance(value, str) else value),
]


class ClusterSettings(Frozen):
    """Variables of the whole cluster, written under `[all:vars]`."""

    cluster_name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$")] | None = Field(
        None, description="Name in paths and in the summary. Default: the inventory's file name."
    )
    bundle: Words = Field(
        default_factory=list,
        description="Bundles on this machine, the older ones first, that everything is taken from instead of "
        "a network: docs/closed-networks.md. `--bundle` has precedence.",
    )
    bundle_signers: Text | None = Field(
        None,
        description="Allowed signers of the bundle, a file; `none` accepts a bundle without a signature.",
    )
    download_rate: Rate | None = Field(
        None, description="A node's connection to the hub, e.g. 1gbit, for the estimate of `deploy plan`."
    )
    container_runtime: Literal["docker", "podman"] = Field(
        "docker",
        description="What runs the containers on every host: the Docker Engine, or Podman with its Docker "
        "API. See docs/podman.md.",
    )
    registry_logins: Text | None = Field(
        None,
        description="Logins of private registries, a file on this machine as `docker login` writes it, such "
        "as `~/.docker/config.json`. See docs/images.md.",
    )
    registry_mirrors: Mirrors = Field(
        default_factory=dict,
        description="Mirrors for the plan's own images of ghcr.io and nvcr.io: `ghcr.io=HOST`, or `china` "
        "for public ones. See docs/behind-a-proxy.md.",
    )
    supervisor_port: HighPort = Field(
        5020, description="Port at which the supervisors of the hosts answer each other."
    )
    webui_port: Port = 8080
    webui_image: Image | None = Field(None, description="Default: the official image.")
    webui_image_source: Literal["registry", "build"] = "registry"
    webui_env: Environment = Field(
        default_factory=dict, description="More environment for the chat page: `A=1 B=2`."
    )
    webui_env_file: Text | None = Field(
        None,
        description="File on this machine with secret environment for the chat page: lines NAME=VALUE, mode "
        "0600.",
    )
    webui_origins: Listed = Field(
        default_factory=list,
        description="Further addresses at which browsers open the chat page, such as "
        "`https://chat.example.org` of a proxy. At any other address it does not work.",
    )
    webui_data_dir: Annotated[str, Field(pattern=r"^/")] = Field(
        "/var/lib/headfirst/webui", description="Folder of the chat page's accounts and chats, on its host."
    )
    prometheus_port: HighPort = Field(
        9090, description="Prometheus, on the loopback address of the host in [monitoring]."
    )
    prometheus_retention: Annotated[str, Field(pattern=r"^[1-9]\d*[hdwy]$")] = Field(
        "15d", description="How long metrics are kept; `prometheus_size` may shorten it."
    )
    prometheus_size: Annotated[str, Field(pattern=r"^[1-9]\d*[MGT]B$")] = Field(
        "10GB", description="Maximum disk space of the metrics."
    )
    prometheus_image: Image | None = Field(None, description="Default: the project's own, of one version.")
    prometheus_image_source: Literal["registry", "build"] = Field(
        "registry",
        description="`build` makes one image of Prometheus and the exporter of hosts on this machine, from "
        "Debian's packages.",
    )
    monitoring_from: Networks = Field(
        default_factory=list,
        description="Addresses and networks, such as `192.0.2.40,10.8.0.0/16`, from which a Prometheus of "
        "your own reaches the ports with metrics, and no other port that is closed: docs/monitoring.md.",
    )
    node_exporter_port: HighPort = Field(
        9100, description="The exporter of each rank's host, on its `address`, for the cluster's hosts only."
    )
    node_exporter_image: Image | None = Field(None, description="Default: the project's own, of one version.")
    dcgm_exporter_port: HighPort = Field(
        9400, description="The exporter of each host's GPUs, on its `address`, for the cluster's hosts only."
    )
    dcgm_exporter_image: Image | None = Field(None, description="Default: NVIDIA's own, of one version.")
    grafana: bool = Field(True, description="Run Grafana beside Prometheus, with its dashboards.")
    grafana_port: HighPort = Field(3000, description="Grafana's HTTP port on the host in [monitoring].")
    grafana_image: Image | None = Field(None, description="Default: the project's own, of one version.")
    tls: Literal["none", "files", "local-ca"] = Field(
        "none",
        description="TLS in front of the API and the chat page: `files` are tls_certificate and tls_key, "
        "`local-ca` is an authority made for this cluster. See docs/tls-and-keys.md.",
    )
    tls_certificate: Text | None = Field(
        None,
        description="With tls=files: PEM file on this machine, the certificate and its chain.",
    )
    tls_key: Text | None = Field(None, description="With tls=files: PEM file on this machine, not encrypted.")
    tls_names: Annotated[Listed, AfterValidator(values.host_names)] = Field(
        default_factory=list,
        description="Names and addresses at which users reach the proxy; the first one is printed. Default: "
        "proxy_addresses, which are always among them.",
    )
    proxy: bool | None = Field(
        None,
        description="A proxy in front of the API and the chat page, with API keys that have names. Default: "
        "`true` with `tls`, else `false`.",
    )
    proxy_addresses: Addresses = Field(
        default_factory=list,
        description="Addresses of the chat page's host at which the proxy listens: `192.0.2.11,10.0.0.11`. "
        "Default: `address`.",
    )
    proxy_port: Port | None = Field(None, description="Default: 443 with `tls`, else 80.")
    proxy_image: Image | None = Field(None, description="Default: the official image of HAProxy.")
    proxy_image_source: Literal["registry", "build"] = "registry"
    router_image: Image | None = Field(None, description="Default: the official image.")
    router_image_source: Literal["registry", "build"] = "registry"
    spare_takeover: bool = Field(
        False,
        description="A spare replaces a host of a replica that does not come back, without a controller: "
        "docs/supervisor.md. For replicas of two and more hosts.",
    )
    drivers: Literal["install", "keep"] = Field(
        "install",
        description="`install` NVIDIA's driver, its container toolkit and RDMA where they are missing; "
        "`keep` what the hosts have.",
    )
    allow_reboot: bool = Field(False, description="A host may be rebooted where its driver requires it.")
    lab_subnet: IPv4Network | None = Field(None, description="Network of lab nodes, created on this machine.")
    own_variables: Listed = Field(
        default_factory=list,
        description="Names of your own variables, or patterns such as `site_*`, that are not compared "
        "with the names above.",
    )

    def mirrored(self, image: str) -> str:
        """The name by which an image of the plan is pulled: at the mirror of its registry."""
        registry, slash, rest = image.partition("/")
        return f"{self.registry_mirrors.get(registry, registry)}{slash}{rest}"


class ServiceSettings(Frozen):
    """Variables of one service: under `[all:vars]`, or under `[GROUP:vars]` of a group that sets `model`."""

    model: Text = Field(
        "", description="Hub id (`deepseek-ai/DeepSeek-R1`) or an absolute folder on the head."
    )
    model_source: weight_sources.Name = Field(
        weight_sources.DEFAULT_HUB,
        description="Where the checkpoint comes from; `demo` is the small ones that Headfirst includes, "
        "`model=headfirst-demo` (the default, for chat) and `model=headfirst-demo-embedding`.",
    )
    model_revision: Text | None = Field(
        None,
        description="Branch, tag or commit on the hub. Default, also of an empty value: the catalogue's "
        "commit, or the branch.",
    )
    trust_remote_code: bool | None = Field(
        None,
        description="Run Python code of the model's repository in the engine's container. Default: "
        "only at a commit that the built-in catalogue lists.",
    )
    served_model_name: Text | None = Field(
        None, description="Name in the API. Default: the model's last part."
    )
    task: Task | None = Field(
        None, description="Task of the model. Default: the task of its family, else `chat`."
    )
    preset: Literal["latency", "throughput", "long-context"] | None = Field(
        None, description="Engine flags for few fast requests, many requests, or long ones: docs/presets.md."
    )
    parsers: Literal["auto", "none"] | None = Field(
        None,
        description="`auto`: the engine's parsers of reasoning and tool calls for this model, which coding "
        "agents need. Default: `auto`; a service that runs without them stays as it is until `parsers` is "
        "written.",
    )
    adapters: Adapters = Field(
        default_factory=dict,
        description="LoRA adapters: `name=org/repository`, `name=org/repository@revision` (branch, tag or "
        "commit) or `name=/folder/on/the/head`, more after spaces.",
    )
    draft_model: DraftModel | None = Field(
        None,
        description="A model that drafts tokens for this one (EAGLE, MTP, a smaller model): "
        "`org/repository` or `/folder/on/the/head`. See docs/presets.md.",
    )
    draft_model_revision: Text | None = Field(
        None, description="Branch, tag or commit of draft_model on the hub. Default: the branch."
    )
    weights_dir: Folder = Field(
        "/var/lib/headfirst/models",
        description="Folder for checkpoints on every node; give it a fast, large disk.",
    )
    weights_fetch: FetchMode = Field(
        "auto",
        description="Who fetches from a hub: `head`, `all` nodes (each shard once), or `auto`: all nodes "
        "where that is measured to be faster.",
    )
    weights_carrier: Literal["tcp", "rdma"] = Field(
        "tcp", description="Not used: the weights travel over TCP. A later release refuses it."
    )
    weights_encrypt: bool = Field(
        False, description="Encrypt the weights between the nodes with TLS; this uses processor time."
    )
    weights_shared: Literal["auto", "in_place", "stage"] = Field(
        "auto",
        description="With model_source=path: `in_place` serves the folder where it is, on a share or as a "
        "copy on each node; `auto` does so where all nodes see it; `stage` copies it to each weights_dir.",
    )
    weights_warm_cache: bool | Literal["auto"] = Field(
        "auto",
        description="Read the weights into memory before the ranks start: `true` as much as fits beside the "
        "engine, `auto` only where all of it fits.",
    )
    keep_fp8: bool = Field(False, description="Keep the FP8 checkpoint where it is converted to BF16.")
    replicas: Count | None = Field(
        None,
        description="Copies of the service, each with its own hosts or GPUs, in the order of the "
        "inventory. Default: 1, or with gpus_per_replica as many as the GPUs allow.",
    )
    gpus_per_replica: Count | None = Field(
        None, description="GPUs of each replica. Default: all GPUs of its hosts."
    )
    prefill_replicas: Count | None = Field(
        None,
        description="Replicas that compute the prompts, beside decode_replicas, which compute the answers: "
        "docs/disaggregation.md. Instead of `replicas`.",
    )
    decode_replicas: Count | None = Field(
        None, description="Replicas that compute the answers, beside prefill_replicas."
    )
    prefill_gpus_per_replica: Count | None = Field(
        None, description="gpus_per_replica of the prefill replicas."
    )
    decode_gpus_per_replica: Count | None = Field(
        None, description="gpus_per_replica of the decode replicas."
    )
    gpu_devices: Devices = Field(
        default_factory=list,
        description="GPUs of each host that this service uses, by index or UUID, such as `0,1,2,3`. Default: "
        "all, or those that the services before it leave.",
    )
    engine: Text = Field("sglang", description="Serving engine, see docs/engines.md.")
    engine_device: Literal["cuda", "cpu"] = "cuda"
    engine_image: Image | None = Field(
        None, description="repo:tag or repo:tag@sha256:… Default: the engine's own."
    )
    engine_version: Text | None = Field(
        None,
        description="The engine's version, e.g. 0.5.23. Default: that in the tag of the image, or the "
        "snapshot's.",
    )
    engine_runtime: Literal["ray"] | None = Field(
        None,
        description="`ray`: the ranks meet in a Ray cluster, which needs an image with Ray. Default: the "
        "engine's own launcher.",
    )
    engine_image_source: Literal["registry", "tarball", "build"] = Field(
        "registry", description="`build` makes the CPU image from Debian and PyPI packages on this machine."
    )
    engine_image_tarball: Text | None = Field(None, description="`docker save` file on this machine.")
    engine_args: Words = Field(
        default_factory=list,
        description="More engine flags, as on a command line: the longest context, for example.",
    )
    engine_env: EngineEnvironment = Field(
        default_factory=dict, description="More environment for every rank: `A=1 B=2`."
    )
    engine_env_file: Text | None = Field(
        None,
        description="File on this machine with secret environment for every rank: lines NAME=VALUE, mode "
        "0600. See docs/engines.md.",
    )
    prefill_engine_args: Words = Field(
        default_factory=list, description="Engine flags of the prefill replicas, after engine_args."
    )
    decode_engine_args: Words = Field(
        default_factory=list, description="Engine flags of the decode replicas, after engine_args."
    )
    prefill_engine_env: EngineEnvironment = Field(
        default_factory=dict, description="Environment of the prefill replicas, beside engine_env."
    )
    decode_engine_env: EngineEnvironment = Field(
        default_factory=dict, description="Environment of the decode replicas, beside engine_env."
    )
    kv_transfer: KvCarrier | None = Field(
        None,
        description="What carries the KV cache from prefill to decode replicas. Default: the engine's own "
        "choice, docs/disaggregation.md.",
    )
    engine_volumes: Volumes = Field(
        default_factory=list,
        description=(
            "Folders of the hosts that are mounted in every rank, such as `/data/templates:/templates:ro`."
        ),
    )
    engine_cache_dir: Folder | Literal["none"] | None = Field(
        None,
        description="Where each node keeps what the engine compiles (torch.compile, kernels) between starts. "
        "Default: a folder of Headfirst's, which nodes bring to each other, docs/supervisor.md. "
        "A folder of yours is mounted as it is; `none` keeps nothing.",
    )
    engine_port: HighPort = Field(
        30000, description="The engine's HTTP port on the head; the next free one for further replicas there."
    )
    dist_port: HighPort = Field(
        5000, description="Rendezvous port on the head; for further replicas there in steps of 100."
    )
    kv_transfer_port: HighPort = Field(
        7100,
        description="Port at which a prefill or decode replica is asked for its KV cache, on each of its "
        "hosts; for further replicas there in steps of 100.",
    )
    router_port: HighPort = Field(
        8000,
        description="Port of the service's router on each host of [router], or on the cluster's head where "
        "the service has several replicas; the next free one for further services.",
    )
    router_metrics_port: HighPort = Field(
        29000, description="Port of the router's metrics; the next free one for further services."
    )
    router_policy: RouterPolicy = Field(
        "cache_aware",
        description="How the router chooses a replica: docs/router.md. `cache_aware` keeps requests that "
        "begin alike on one replica.",
    )
    tensor_parallel: int | None = Field(None, ge=1, description="Default: chosen by the plan.")
    pipeline_parallel: int | None = Field(None, ge=1, description="Default: chosen by the plan.")
    prefill_tensor_parallel: int | None = Field(
        None, ge=1, description="tensor_parallel of the prefill replicas. Default: tensor_parallel."
    )
    decode_tensor_parallel: int | None = Field(
        None, ge=1, description="tensor_parallel of the decode replicas. Default: tensor_parallel."
    )
    prefill_pipeline_parallel: int | None = Field(
        None, ge=1, description="pipeline_parallel of the prefill replicas. Default: pipeline_parallel."
    )
    decode_pipeline_parallel: int | None = Field(
        None, ge=1, description="pipeline_parallel of the decode replicas. Default: pipeline_parallel."
    )
    shm_size: Bytes = "32g"
    api_key_file: Text | None = Field(
        None,
        description="File on this machine with the key of the API, for clients that have one already: one "
        "line, mode 0600. Default: `deploy up` generates a key. See docs/tls-and-keys.md.",
    )
    rehearse: Rehearse = Field(
        "auto",
        description="Start the ranks with dummy weights while the weights come: `auto` where these need more "
        "than about three minutes; `strict` always, and a failure ends `deploy up`; `false`. See "
        "docs/rehearsal.md.",
    )
    ready_timeout: int = Field(3600, ge=10, description="Seconds until the service must answer a request.")
    drain_timeout: int = Field(
        120,
        ge=0,
        description="Seconds that a replica behind a router gets to answer the requests that it has, before "
        "its ranks are stopped for a change.",
    )
    hang_timeout: int = Field(
        180,
        ge=20,
        description="Seconds without a computed token or an answer after which all ranks of a replica are "
        "started again.",
    )

    @property
    def source(self) -> weight_sources.WeightSource:
        """The one that model_source names."""
        return weight_sources.SOURCES[self.model_source]

    @property
    def own_cache_dir(self) -> str | None:
        """The user's folder for what the engine compiles; None: Headfirst's, or none."""
        return None if self.engine_cache_dir == "none" else self.engine_cache_dir

    def of_role(self, role: Role) -> ServiceSettings:
        """The settings of the prefill or of the decode replicas alone."""
        changed = {name: getattr(self, f"{role}_{name}") or getattr(self, name) for name in OF_ROLE}
        # These two are beside the service's own.
        changed["engine_args"] = [*self.engine_args, *getattr(self, f"{role}_engine_args")]
        changed["engine_env"] = self.engine_env | getattr(self, f"{role}_engine_env")
        return self.model_copy(update=changed)


class HostSettings(Frozen):
    """Variables of one host, written on its line."""

    address: IPv4Address | None = Field(None, description="Address the ranks use. Default: ansible_host.")
    gpus: int | None = Field(None, ge=0, le=64, description="Number of GPUs that serve on this host.")
    gpu: Text | None = Field(None, description="GPU model, e.g. A100-80G. Default: what the host reports.")
    gpu_memory: ByteCount | None = Field(
        None,
        description="Memory of one GPU, as the driver reports it: `95830m`, `94g` or `94GiB`. Default: what "
        "the host reports, or that of the named `gpu`.",
    )
    gpu_capability: Annotated[str, BeforeValidator(_text), Field(pattern=r"^[1-9]\d?\.\d$")] | None = Field(
        None, description="Compute capability of a `gpu` that is not in Headfirst's list, e.g. 9.0."
    )
    weights_addresses: Addresses = Field(
        default_factory=list,
        description="Addresses between which the weights go, one for each interface, as many on every host: "
        "`10.1.0.11,10.2.0.11`. Default: `address`.",
    )
    nic: Text | None = Field(None, description="Interface that holds `address`. Default: read from the host.")
    hca: Hcas | None = Field(
        None, description="RDMA devices, e.g. mlx5_1,mlx5_2; `none` for no RDMA. Default: chosen by the plan."
    )
    ib_gid_index: int | None = Field(
        None, ge=0, description="GID index of RoCE v2 with IPv4. Default: chosen by the plan."
    )
    network_rate: Rate | None = Field(
        None, description="The link of `nic`, e.g. 25gbit; `deploy plan` uses it in its estimates."
    )
    disk_rate: Rate | None = Field(
        None,
        description=(
            "Sustained rate of the disk of weights_dir, e.g. 3gbyte; `deploy plan` uses it in its estimates."
        ),
    )
    cpu_cores: Cores | None = Field(
        None,
        description="With engine_device=cpu, the cores that its ranks share, e.g. 0-15. Default: all.",
    )
    http_proxy: ProxyUrl | None = Field(
        None,
        description="Proxy to what is outside of the cluster: archives, registries, hubs. "
        "`http://HOST:PORT`, see docs/behind-a-proxy.md.",
    )
    https_proxy: ProxyUrl | None = Field(None, description="Proxy for https URLs. Default: http_proxy.")
    no_proxy: Exceptions = Field(
        default_factory=list,
        description="Names, domains such as `.example.org`, and addresses that are reached without the "
        "proxy, beside the hosts of the cluster.",
    )
    http_proxy_login_file: Text | None = Field(
        None,
        description="File on this machine with the login of the proxies: one line USER:PASSWORD, mode 0600.",
    )
    lab: bool = Field(False, description="This host is a node that is created on this machine.")
    lab_memory: Bytes | None = None
    lab_cpus: float | None = Field(None, gt=0)


CLUSTER_NAMES = frozenset(ClusterSettings.model_fields)
SERVICE_NAMES = frozenset(ServiceSettings.model_fields)
HOST_NAMES = frozenset(HostSettings.model_fields)
SETTING_NAMES = CLUSTER_NAMES | SERVICE_NAMES | HOST_NAMES
# An inventory may write its settings with it, beside another program's variables: then no other name is one.
PREFIX = "headfirst_"
