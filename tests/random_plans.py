"""Random inventories, engine arguments and config.json through the product's own code, and what must hold.

Ansible's reading alone is replaced: an inventory here is what it would have answered. Each plan is made,
checked and rendered for every target.
"""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from headfirst.common.errors import HeadfirstError, InputError
from headfirst.control.deployment.verbs.render import RenderOptions, Target, files_of
from headfirst.control.inventory import inventory
from headfirst.control.inventory.ansible_reader import GROUPS
from headfirst.control.inventory.reading import HostReading, Reading, ServiceReading
from headfirst.control.inventory.variables import role_options
from headfirst.decide import engines
from headfirst.decide.cluster.settings import CLUSTER_NAMES, HOST_NAMES, SERVICE_NAMES
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.config import WeightFiles, from_config
from headfirst.decide.plan.build import build
from headfirst.decide.plan.types import Node, Plan, PlannedReplica, PlannedService
from hypothesis import strategies as st

CONFIGS = Path(__file__).parent / "unit" / "data" / "model-configs"
TARGETS = get_args(Target)
GPUS = ("H100-80G", "H200-141G", "A100-80G", "A100-40G", "L40S", "RTX4090", "T4", "B200", "V100-32G")
_LOGIN: dict[str, Any] = {
    **dict.fromkeys(("port", "user", "private_key", "password", "become_exe", "become_flags")),
    **dict.fromkeys(("ssh_args", "ssh_more_args"), ""),
    "host_key_checking": True,
    "password_mechanism": "ssh_askpass",
    "become_password": None,
    "become": True,
    "become_user": "root",
    "become_method": "sudo",
    "connection": "ssh",
}
# What a person, a template or YAML can put in the place of a value.
_HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 3, -1, 7, 64, 10**20, 0.5, math.nan, math.inf, -math.inf),
    *("", " ", "0", "1", "-1", "nan", "x", "a b", "'", "{", "1,2", "0-3", "☃", "../x", "/x", "none", "a=b"),
    *([], [1], [None], [[]], {}, {"a": 1}, {"a": None}),
)
_TYPED: Mapping[str, tuple[str, ...]] = {
    "int": ("0", "1", "2", "4", "8", "-1", "4096", "131072", "9" * 20),
    "float": ("0", "0.5", "0.9", "1", "2", "-1", "nan", "inf", "1e308", "1e-308"),
    "str": ("", "x", "auto", "none", "fp8", "bfloat16", "half", "/x", "mooncake", "awq"),
    "json": ("{}", "[]", "null", "1", "NaN", '{"a": 1}', '{"image": 0}', '{"method": "mtp"}'),
}
_TYPED |= {"config": _TYPED["json"], "json_or_str": _TYPED["json"]}
# Objects that the plan computes with, by flag.
OBJECTS = {
    "--speculative-config": (
        *('{"method": 1}', '{"num_speculative_tokens": 0}', '{"model": []}', '{"kv_cache_dtype": []}'),
        *('{"num_speculative_tokens": "x", "method": "mtp"}', '{"draft_tensor_parallel_size": 0}'),
        '{"method": "mtp", "num_speculative_tokens": 1}',
        '{"num_speculative_tokens": 99999999999999999999}',
    ),
    "--compilation-config": (
        *('{"cudagraph_capture_sizes": "x"}', '{"cudagraph_capture_sizes": [0]}', '{"cudagraph_mode": []}'),
        *('{"max_cudagraph_capture_size": "x"}', '{"max_cudagraph_capture_size": 9999999999}'),
    ),
    "--kv-transfer-config": (
        *(f'{{"kv_connector": {name}}}' for name in ('"OffloadingConnector"', "1", '"NixlConnector"')),
        *(
            f'{{"kv_connector": "{name}", "kv_connector_extra_config": {extra}}}'
            for name in ("OffloadingConnector", "SimpleCPUOffloadConnector", "MultiConnector")
            for extra in (
                *("[]", '"x"', '{"cpu_bytes_to_use": "x"}', '{"cpu_bytes_to_use": -1}', '{"connectors": 1}'),
                *('{"cpu_bytes_to_use": 99999999999999999999}', '{"cpu_bytes_to_use_per_rank": []}'),
                *('{"kv_offload_backend": "disk", "disk_path": 1, "disk_capacity_bytes": {}}',),
            )
        ),
    ),
    "--hicache-storage-backend-extra-config": ("[]", '{"max_size": []}', '{"global_segment_size": "-1gb"}'),
    "--hf-overrides": ('{"rope_scaling": 1}', '{"max_position_embeddings": "x"}', '{"text_config": []}'),
    "--json-model-override-args": ("[]", '{"max_position_embeddings": 0}'),
}
_TYPED |= dict.fromkeys(("human_int", "size", "size_or_auto"), (*_TYPED["int"], "8k", "8Ki", "auto"))


@dataclass(frozen=True)
class Example:
    """`values` by host, `services` by group: hosts and values; `head` and `workers` where there are none."""

    groups: Mapping[str, Sequence[str]]
    hosts: Mapping[str, Mapping[str, Any]]
    services: Mapping[str, tuple[Sequence[str], Mapping[str, Any]]]
    configs: Sequence[Mapping[str, Any]]  # of each service
    sizes: Sequence[int]  # of its weights, in bytes


@cache
def published() -> tuple[dict[str, Any], ...]:
    """config.json of published models."""
    return tuple(json.loads(path.read_text())["config"] for path in sorted(CONFIGS.glob("*.json")))


@cache
def _keys() -> list[str]:
    keys = {"layers_block_type", "attn_layer_period", "block_configs", "sparse_attention_config"}
    keys |= {"attn_type_list", "compress_ratios", "rope_parameters", "max_window_layers"}
    keys |= {"full_attention_interval", "moe_layer_freq"}
    for config in published():
        for part in (config, *(value for value in config.values() if isinstance(value, dict))):
            keys |= part.keys()
    return sorted(keys)


@cache
def _words(engine: str) -> list[tuple[str, ...]]:
    """Each option of an engine, with each of some values."""
    words: list[tuple[str, ...]] = []
    for option in engines.get(engine).specification.options.values():
        flag = option["flags"][0]
        if option["type"] == "flag":
            words.append((flag,))
            continue
        values = map(str, option["choices"]) if "choices" in option else _TYPED.get(option["type"], ("x",))
        words += [(flag, value) for value in (*OBJECTS.get(flag, ()), *values)]
    return words


# Those that decide a layout or a size.
LAYOUT = {
    "sglang": (
        *("--dp-size", "--ep-size", "--attn-dp-size", "--attn-cp-size", "--moe-dp-size", "--hicache-size"),
        *("--context-length", "--mem-fraction-static", "--max-running-requests", "--chunked-prefill-size"),
        *("--page-size", "--hicache-ratio", "--cuda-graph-max-bs-decode", "--max-total-tokens", "--dtype"),
        *("--enable-dp-attention", "--swa-full-tokens-ratio", "--cpu-offload-gb", "--quantization"),
        *("--kv-cache-dtype", "--enable-hierarchical-cache", "--nccl-port", "--speculative-algorithm"),
        "--moe-dense-tp-size",
    ),
    "vllm": (
        *("--data-parallel-size", "--prefill-context-parallel-size", "--decode-context-parallel-size"),
        *("--enable-expert-parallel", "--max-model-len", "--gpu-memory-utilization", "--max-num-seqs"),
        *("--max-num-batched-tokens", "--block-size", "--kv-cache-dtype", "--cpu-offload-gb", "--dtype"),
        *("--speculative-config", "--compilation-config", "--kv-transfer-config", "--quantization"),
    ),
    "lmdeploy": (
        *("--dp", "--ep", "--cp", "--session-len", "--cache-max-entry-count", "--max-batch-size"),
        *("--backend", "--cache-block-seq-len", "--quant-policy", "--max-prefill-token-num", "--dtype"),
        "--model-format",
    ),
}
_PORTS = (5000, 5004, 5010, 5020, 5100, 7100, 8000, 8080, 9090, 9100, 30000, 30001, 30233, 65531, 65535)
_DEVICES = ("0", "0,1", "1 2", "0,1,2,3", "4,5,6,7", "GPU-1a", "GPU-1a,GPU-2b", "MIG-1a", "7", [0, 1], "0 0")
# Values that people write; those of two names go together.
_USUAL: Mapping[str, Sequence[Any]] = {
    **dict.fromkeys(
        ("replicas", "gpus_per_replica", "tensor_parallel", "pipeline_parallel"), (1, 2, 3, 4, 8, 16)
    ),
    **dict.fromkeys(
        ("engine_port", "dist_port", "kv_transfer_port", "router_port", "supervisor_port"), _PORTS
    ),
    **dict.fromkeys(("webui_port", "prometheus_port", "grafana_port", "proxy_port"), _PORTS),
    "gpu_devices": _DEVICES,
    "preset": ("latency", "throughput", "long-context"),
    "parsers": ("auto",),
    "task": ("chat", "embedding", "rerank", "reward", "completion"),
    "engine_device": ("cpu",),
    "engine_runtime": ("ray",),
    "engine_image": ("lmsysorg/sglang:v0.5.22", "vllm/vllm-openai:v0.7.3", "a/b:1"),
    "engine_env": (
        "A=1",
        "LMCACHE_MAX_LOCAL_CPU_SIZE=nan",
        "LMCACHE_MAX_LOCAL_DISK_SIZE=1e999",
        "SGLANG_PP_LAYER_PARTITION=1,2",
        "VLLM_PP_LAYER_PARTITION=x",
        {"A": "$(id)"},
    ),
    "engine_volumes": ("/data/t:/t:ro", "/data/t:/t"),
    "engine_cache_dir": ("/data/cache",),
    "served_model_name": ("m", "a:b", "it's"),
    "adapters": ("a=/data/a", "a=org/a b=org/b@v1"),
    "draft_model": ("org/draft", "/data/draft"),
    "shm_size": ("1g", "1.5g", "1t"),
    "weights_shared": ("in_place", "stage"),
    "proxy": (True,),
    "spare_takeover": (True,),
    "container_runtime": ("podman",),
    "drivers": ("keep",),
    "download_rate": ("1gbit",),
    "gpus": (0, 1, 2, 4, 8),
    "gpu": ("H100", "x", "NVIDIA H100 80GB HBM3", "NVIDIA RTX 9000"),
    "gpu_memory": ("80g", "1m", "95830m", 10**15),
    "gpu_capability": ("9.0", "8.0", "7.5"),
    "hca": ("none", "mlx5_0", "mlx5_0,mlx5_1", "^mlx5_0"),
    "nic": ("eth0", "bond0"),
    "ib_gid_index": (0, 3),
    "cpu_cores": ("0-15", "0,2", "3-1"),
    "network_rate": ("25gbit", "1kbit"),
    "disk_rate": ("3gbyte",),
}
_DIVIDED: Mapping[str, Sequence[Any]] = {
    **dict.fromkeys(("prefill_replicas", "decode_replicas"), (1, 2)),
    **dict.fromkeys(("prefill_gpus_per_replica", "decode_gpus_per_replica"), (None, 1, 2, 4)),
    **dict.fromkeys(("prefill_tensor_parallel", "decode_tensor_parallel"), (None, 2)),
    "kv_transfer": (None, "nixl", "mooncake"),
}


@cache
def _arguments(engine: str) -> st.SearchStrategy[list[str]]:
    every = _words(engine)
    layout = [words for words in every if words[0] in LAYOUT[engine]]
    some = st.lists(st.sampled_from(layout) | st.sampled_from(every), min_size=1, max_size=3)
    return some.map(lambda chosen: [word for words in chosen for word in words])


@cache
def _some(names: frozenset[str], most: int) -> st.SearchStrategy[dict[str, Any]]:
    pairs = [(name, value) for name in sorted(names) for value in _USUAL.get(name, ())]
    return st.lists(st.sampled_from(pairs), max_size=most).map(dict)


@cache
def _hostile(names: frozenset[str]) -> st.SearchStrategy[dict[str, Any]]:
    pairs = [(name, value) for name in sorted(names - {"own_variables"}) for value in _HOSTILE]
    return st.sampled_from(pairs).map(lambda pair: dict([pair]))


_NOTHING: st.SearchStrategy[dict[str, Any]] = st.just({})


@st.composite
def examples(draw: st.DrawFn) -> Example:
    """An inventory with its models; at most one part of it is hostile."""
    odd = draw(
        st.sampled_from(("", "cluster", "host", "service", "arguments", "arguments", "config", "config"))
    )
    names = [f"n{number}" for number in range(1, draw(st.sampled_from((1, 1, 2, 2, 3, 4))) + 1)]
    shared = draw(_some(CLUSTER_NAMES, 1)) | draw(_hostile(CLUSTER_NAMES) if odd == "cluster" else _NOTHING)
    fleet = {"gpu": draw(st.sampled_from(GPUS)), "gpus": draw(st.sampled_from((1, 2, 4, 8, 8)))}
    fleet |= draw(st.sampled_from(({"nic": "eth0", "hca": "none"}, {"nic": "eth0"}, {})))
    hosts = {name: {**shared, **fleet} for name in names}
    if odd in ("host", "") and draw(st.booleans()):
        hosts[draw(st.sampled_from(names))] |= draw(_hostile(HOST_NAMES) if odd else _some(HOST_NAMES, 2))
    groups: dict[str, list[str]] = {group: [] for group in GROUPS}
    for group in draw(st.lists(st.sampled_from(("spares", "webui", "router", "monitoring")), max_size=2)):
        name = "n9" if group == "spares" else draw(st.sampled_from((*names, "n9")))
        groups[group], hosts[name] = [name], hosts.get(name, {**shared, **fleet})
    services = {}
    count = draw(st.sampled_from((1, 1, 2)))
    for number in range(count):
        engine = draw(st.sampled_from(("sglang", "sglang", "vllm", "vllm", "lmdeploy")))
        values = {"model": f"org/model-{number}", "engine": engine, "trust_remote_code": True}
        if number == 0 and count > 1:
            values |= {
                "replicas": draw(st.sampled_from((len(names), 2))),
                "gpus_per_replica": fleet["gpus"] // 2 or 1,
            }
        values |= draw(_some(SERVICE_NAMES, 2)) | draw(
            _hostile(SERVICE_NAMES) if odd == "service" else _NOTHING
        )
        if odd == "arguments":
            values["engine_args"] = draw(_arguments(engine))
        if draw(st.integers(0, 5)) == 0:
            drawn = {name: draw(st.sampled_from(listed)) for name, listed in _DIVIDED.items()}
            values = {name: value for name, value in (values | drawn).items() if name != "replicas" and value}
        services[("chat", "small")[number]] = (
            names[draw(st.integers(0, len(names) - 1)) if number else 0 :],
            values,
        )
    if count == 1 and draw(st.booleans()):
        _, values = services.pop("chat")
        groups["head"], groups["workers"] = names[:1], names[1:]
        hosts = {name: {**its, **values} for name, its in hosts.items()}
    sizes = [draw(st.sampled_from((10**9, 10**9, 16 * 10**9, 60 * 10**9, 10**12))) for _ in range(count)]
    return Example(groups, hosts, services, [draw(configs(odd == "config")) for _ in range(count)], sizes)


@st.composite
def configs(draw: st.DrawFn, odd: bool) -> dict[str, Any]:
    """A published config.json, where it is odd with other values of some keys."""
    config = draw(st.sampled_from(published()))
    if not odd:
        return config
    changed = copy.deepcopy(config)
    for key, value in draw(
        st.lists(st.tuples(st.sampled_from(_keys()), st.sampled_from(_HOSTILE)), max_size=3)
    ):
        parts = [changed, *(part for part in changed.values() if isinstance(part, dict))]
        part = next((part for part in parts[::-1] if key in part), changed)
        part[key] = value
    return changed


def reading(example: Example) -> Reading:
    """What Ansible's library would have answered."""
    hosts = {
        name: HostReading(
            written={key: f"cluster.ini:{number}" for number, key in enumerate(values, 1)},
            where={key: f"cluster.ini:{number}" for number, key in enumerate(values, 1)},
            values=values,
            role_values={key: option["default"] for key, option in role_options().items()},
            used=frozenset(),
            login={**_LOGIN, "host": f"192.0.2.{name[1:]}"},
            urls=(),
        )
        for name, values in example.hosts.items()
    }
    services = {
        name: ServiceReading(list(members), values, dict.fromkeys(values, "cluster.ini:9"), {})
        for name, (members, values) in example.services.items()
    }
    groups = {name: list(members) for name, members in example.groups.items()}
    more: dict[str, Any] = {"limited": None, "stated": {}, "prefix": "", "refused": ()}
    return Reading("cluster.ini", groups, list(services), services, hosts, (), **more)


def planned(example: Example, path: Path) -> tuple[Cluster, Plan] | None:
    """The cluster and its plan; None where it is refused, as a person is to read it."""
    original = inventory.read
    inventory.read = lambda *_: reading(example)
    try:
        cluster = inventory.load([path])
        checkpoints = {
            service.name: described(config, size)
            for service, config, size in zip(cluster.services, example.configs, example.sizes, strict=True)
        }
        plan = build(cluster, checkpoints)
    except HeadfirstError as refused:
        assert refused.where and refused.hint, refused
        return None
    finally:
        inventory.read = original
    return cluster, plan


def described(config: Mapping[str, Any], size: int) -> Checkpoint:
    """Its checkpoint, whose headers were not read."""
    return from_config(
        config,
        id="org/model",
        revision=None,
        weights=WeightFiles(size, ()),
        source="folder",
        where="config.json",
    )


def check(example: Example, path: Path) -> bool:
    """Make the plan and assert what holds of each; False where it is refused."""
    made = planned(example, path)
    if made is None:
        return False
    cluster, plan = made
    for service in plan.services:
        for replica in service.replicas:
            _ranks(service, replica)
        _memory(service)
    _nothing_twice(cluster, plan)
    _flags(cluster, plan)
    _rendered(plan)
    return True


def _nodes(plan: Plan) -> Iterator[tuple[PlannedService, PlannedReplica, Node]]:
    for service in plan.services:
        for replica in service.replicas:
            for node in replica.nodes:
                yield service, replica, node


def _ranks(service: PlannedService, replica: PlannedReplica) -> None:
    sized = service.sized(replica)
    assert sized.world_size == sized.tensor_parallel * sized.pipeline_parallel * sized.data_parallel
    assert sized.world_size % len(replica.nodes) == 0
    assert sized.world_size >= 1
    assert sized.tensor_parallel % sized.attention_data_parallel == 0
    for node in replica.nodes:
        if node.gpu_devices is not None:
            assert sized.world_size // len(replica.nodes) <= len(node.gpu_devices)


def _memory(service: PlannedService) -> None:
    for fit in (service.fit, *([service.prefill.fit] if service.prefill else [])):
        if (
            not fit.fits or fit.uncertain or fit.gpu_memory_bytes is None
        ):  # uncertain: by the estimates it does not
            continue
        assert fit.kv_pool_bytes is not None and fit.kv_tokens is not None and fit.longest_request is not None
        used = fit.weight_bytes_per_rank + fit.kv_pool_bytes + sum(fit.terms.values())
        assert abs(used - fit.gpu_memory_bytes) <= 4, (used, fit)
        assert min(fit.kv_pool_bytes, fit.kv_tokens, fit.longest_request) > 0, fit
        assert fit.weight_bytes_per_rank + fit.kv_pool_bytes <= fit.gpu_memory_bytes, fit
        assert fit.draft_bytes_per_rank <= fit.weight_bytes_per_rank


def _nothing_twice(cluster: Cluster, plan: Plan) -> None:
    """No GPU, no port and no name of a container on a host."""
    taken: Counter[tuple[object, ...]] = Counter()
    gpus = {host.name: host.gpus for host in cluster.hosts}
    for service, replica, node in _nodes(plan):
        host = node.host
        taken[host, "name", node.container.name] += 1
        for device in node.gpu_devices or range(gpus[host] or 0) if service.device == "cuda" else ():
            taken[host, "GPU", str(device)] += 1
        own = [replica.engine_port, *replica.rendezvous_ports] if node.rank == 0 else []
        taken.update((host, "port", port) for port in (*own, *node.more_ports))
    for service in plan.services:
        for router in service.routers:
            taken.update((router.host, "port", port) for port in (router.port, router.metrics_port))
            taken[router.host, "name", router.container.name] += 1
    for host in cluster.nodes:
        taken.update((host.name, "port", port) for port in (22, 5010, cluster.settings.supervisor_port))
    if plan.webui:
        taken[plan.webui.host, "port", plan.webui.port] += 1
    if plan.proxy:
        taken.update((plan.proxy.host, "port", port) for port in (plan.proxy.port, plan.proxy.metrics_port))
    assert not [what for what, count in taken.items() if count > 1]
    assert all(0 < what[2] < 65536 for what in taken if what[1] == "port")  # type: ignore[operator]


def _flags(cluster: Cluster, plan: Plan) -> None:
    """Each is of the engine's version."""
    for service, _, node in _nodes(plan):
        options = engines.get(service.engine, service.engine_version).specification.options
        words = node.container.command
        start = next((at for at, word in enumerate(words) if word in ("sglang.launch_server", "serve")), 0)
        lacking = [
            word
            for word in words[start:]
            if word.startswith("--") and word.partition("=")[0] not in options and word not in _OTHER_FLAGS
        ]
        assert not lacking, lacking


# argparse takes --tp for --tp-size; LMDeploy's proxy has its own.
_OTHER_FLAGS = {"--tp", "--disable-cache-status"}


def _rendered(plan: Plan) -> None:
    for target in TARGETS:
        if plan.proxy and target in ("docker-run", "compose"):
            continue
        try:
            files = files_of(plan, target, RenderOptions(), "deploy render")
        except InputError as refused:
            assert refused.hint, refused
            continue
        text = "".join(file.text for file in files.values())
        for _, _, node in _nodes(plan):
            assert node.container.image in text, target
            for volume in (each for each in node.container.volumes if not each.startswith("/etc/headfirst/")):
                assert volume.split(":")[1] in text, (target, volume)
