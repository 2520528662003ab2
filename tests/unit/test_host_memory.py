"""What ranks keep in the memory of their hosts, by hand; sources: host_memory.py of each engine's folder."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
from clusters import planned, with_hosts, with_settings
from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.engines.host_memory import HostRequest, KeptMemory
from headfirst.decide.engines.layout import Layout
from headfirst.decide.plan.host.requirements import requirements
from headfirst.decide.plan.types import Plan
from known_models import model as known

GIB, GB = 2**30, 10**9
MODEL, LATENT = "Qwen/Qwen3-32B", "deepseek-ai/DeepSeek-R1"
INVENTORY = f"[head]\nn0 ansible_host=192.0.2.1\n\n[all:vars]\nmodel={MODEL}\n"
HICACHE = "--enable-hierarchical-cache"
SIMPLE = (
    '{"kv_connector": "SimpleCPUOffloadConnector", "kv_role": "kv_both", "kv_connector_extra_config": %s}'
)
NONE = "{}"
EACH = '{"cpu_bytes_to_use_per_rank": 1073741824}'


def kept(
    engine: str,
    arguments: str,
    *,
    layout: Layout | None = None,
    ranks: int = 4,
    environment: dict[str, str] | None = None,
    role: str | None = None,
    model: str = MODEL,
    longest: int = 10_000,
) -> KeptMemory:
    """Of one host, where each rank has 40 GiB of KV cache for 100,000 tokens."""
    its = engines.get(engine, None)
    values = its.check_arguments(shlex.split(arguments)).require(where=None)
    if engine == "sglang" and role:
        values = {**values, "disaggregation_mode": role}
    request = HostRequest(
        checkpoint=known(model),
        layout=layout or Layout(4),
        ranks=ranks,
        values=values,
        environment=environment or {},
        role=role,
        pool_bytes=40 * GIB,
        tokens=100_000,
        longest=longest,
    )
    return its.host_memory(request)


@pytest.mark.parametrize(
    ("arguments", "size", "lowered"),
    [
        (f"{HICACHE} --hicache-ratio 3", 3 * 40 * 4 * GIB, False),
        (f"{HICACHE} --hicache-size 100", 100 * GB * 4, False),  # GB, of each rank
        (f"{HICACHE} --hicache-size 100 --hicache-ratio 3", 100 * GB * 4, False),
        (HICACHE, 2 * 40 * 4 * GIB, True),
        (
            f"{HICACHE} --hicache-host-memory-mode buffer_only --hicache-storage-backend nixl",
            int(1.2 * 40 * 4 * GIB),
            True,
        ),
        ("", 0, False),
        # Mooncake: 4 GiB of the replica, divided by its ranks.
        (f"{HICACHE} --hicache-size 1 --hicache-storage-backend mooncake", 4 * GB + 4 * GIB, False),
        ("--enable-lmcache", 0, False),  # its server is another process
    ],
)
def test_sglang(arguments: str, size: int, lowered: bool) -> None:
    its = kept("sglang", arguments)
    assert sum(its.terms.values()) == size
    assert its.lowered == lowered
    assert its.keeps_free == (10 * GIB if HICACHE in arguments else 0)


def test_sglang_latent_caches_are_mirrored_by_each_rank() -> None:
    its = kept("sglang", f"{HICACHE} --hicache-ratio 1", layout=Layout(8), ranks=8, model=LATENT)
    assert sum(its.terms.values()) == 8 * 40 * GIB


@pytest.mark.parametrize(
    ("arguments", "model", "longest", "size"),
    [
        ("", MODEL, 10_000, int(0.2 * 40 * GIB) * 4),
        ("", MODEL, 50_000, int(0.5 * 40 * GIB) * 4),  # at least one request
        ("", LATENT, 10_000, 0),
        ("--disaggregation-decode-retraction-backup cpu_tensor", MODEL, 10_000, 0),
        ("--disaggregation-decode-enable-radix-cache", MODEL, 10_000, 0),
        (
            "--disaggregation-decode-enable-offload-kvcache --hicache-storage-backend nixl",
            MODEL,
            10_000,
            2 * 40 * 4 * GIB,
        ),
        (
            f"{HICACHE} --disaggregation-decode-enable-radix-cache --hicache-ratio 3",
            MODEL,
            10_000,
            3 * 40 * 4 * GIB,
        ),
    ],
)
def test_a_decode_replica_of_sglang(arguments: str, model: str, longest: int, size: int) -> None:
    its = kept("sglang", arguments, role="decode", model=model, longest=longest)
    assert sum(its.terms.values()) == size


@pytest.mark.parametrize(
    ("arguments", "layout", "ranks", "model", "size", "shared"),
    [
        ("--kv-offloading-size 100", Layout(4), 4, MODEL, 100, 100),  # of all ranks together
        ("--kv-offloading-size 100", Layout(1, data=8), 8, MODEL, 800, 800),  # of each group
        # Over two hosts the file is as large on both, and each fills the parts of its ranks.
        ("--kv-offloading-size 100", Layout(16), 8, MODEL, 50, 100),
        ("--kv-offloading-size 100", Layout(16), 8, LATENT, 100, 100),
        ("--kv-offloading-size 100 --kv-offloading-backend lmcache", Layout(4), 4, MODEL, 0, 0),
        ("", Layout(4), 4, MODEL, 0, 0),
        (f"--kv-transfer-config '{SIMPLE % NONE}'", Layout(16), 8, MODEL, 4, 0),  # 8 GiB by default
        (f"--kv-transfer-config '{SIMPLE % EACH}'", Layout(4), 4, MODEL, 4, 0),
    ],
)
def test_vllm(arguments: str, layout: Layout, ranks: int, model: str, size: int, shared: int) -> None:
    its = kept("vllm", arguments, layout=layout, ranks=ranks, model=model)
    assert (sum(its.terms.values()), its.shared) == (size * GIB, shared * GIB)


def test_vllm_with_connectors_inside_another_one() -> None:
    inner = '{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}'
    config = (
        '{"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": '
        f'{{"connectors": [{inner}]}}}}'
    )
    environment = {"LMCACHE_MAX_LOCAL_CPU_SIZE": "2.5", "LMCACHE_LOCAL_DISK": "file:///kv"}
    its = kept("vllm", f"--kv-transfer-config '{config}'", environment=environment)
    assert sum(its.terms.values()) == 10 * GIB
    assert [folder.path for folder in its.folders] == ["/kv"]


def test_an_offloaded_cache_takes_the_place_of_the_connector_between_replicas() -> None:
    (problem,) = kept("vllm", "--kv-offloading-size 10", role="prefill").problems
    assert "between prefill and decode" in problem


def on_host(
    cluster: Cluster, memory: int | None, *, gpu: str = "H100-80G", gpus: int = 4, **given: Any
) -> Cluster:
    settings = {name: shlex.split(text) if name == "engine_args" else text for name, text in given.items()}
    host = replace(
        cluster.hosts[0], gpus=gpus, gpu=gpu, memory_bytes=None if memory is None else memory * GIB
    )
    return with_hosts(with_settings(cluster, **settings), [host])


def plan(cluster: Cluster, memory: int | None, **given: Any) -> Plan:
    return planned(on_host(cluster, memory, **given), known(MODEL))


def test_what_exceeds_the_hosts_memory_is_refused_with_the_largest_value(cluster: Cluster) -> None:
    with pytest.raises(
        InputError, match=r"n0 has 1000.0 GiB of memory, and its ranks need 38\d{3}"
    ) as refused:
        plan(cluster, 1000, engine_args=f"{HICACHE} --hicache-ratio 200")
    # 1000 − 10 − 4 × 8 − 32 = 926 GiB for 4 × 47.9 GiB: 4.8.
    assert refused.value.hint == "Set --hicache-ratio to 4.8 or less."
    service = plan(cluster, 1000, engine_args=f"{HICACHE} --hicache-ratio 4.8").services[0]
    assert service.host_memory is not None
    # 64 layers × 2 heads of a rank × (128 + 128) × 2 bytes for each token.
    assert service.fit.kv_bytes_per_token == 65_536
    mirrored = 4 * (service.fit.kv_tokens or 0) * 65_536
    assert service.host_memory.bytes == pytest.approx(4.8 * mirrored, rel=1e-6)
    assert "runs out of memory" not in service.host_memory.reason


@pytest.mark.parametrize(
    ("engine", "arguments", "refused", "noted"),
    [
        ("sglang", f"{HICACHE} --hicache-ratio 200", "38.* GiB of KV cache", ""),
        ("sglang", f"{HICACHE} --hicache-ratio 8", "", ""),
        ("sglang", f"{HICACHE} --hicache-ratio 16", "", "Most servers with GPUs have 2048.0 GiB or less."),
        ("sglang", f"{HICACHE} --hicache-size 1000", "", "Most servers"),
        ("sglang", f"{HICACHE} --hicache-size 5000", "need 18636", ""),
        ("vllm", "--kv-offloading-size 90000", "need 90000", ""),
    ],
)
def test_no_host_has_more_memory_than_servers_have(
    cluster: Cluster, engine: str, arguments: str, refused: str, noted: str
) -> None:
    if refused:
        with pytest.raises(InputError, match=f"n0 has 8192.0 GiB of memory at most.*{refused}") as caught:
            plan(cluster, None, engine=engine, engine_args=arguments)
        assert "--probe reads the memory" in str(caught.value.hint)
        return
    service = plan(cluster, None, engine=engine, engine_args=arguments).services[0]
    assert service.host_memory is not None
    assert ("Most servers" in service.host_memory.reason) == bool(noted)
    assert noted in service.host_memory.reason


def test_replicas_share_the_memory_of_their_host(cluster: Cluster) -> None:
    arguments = f"{HICACHE} --hicache-size 150"
    with pytest.raises(InputError, match=r"need 1127\.6 GiB: 1117\.6 GiB of KV cache") as refused:
        plan(cluster, 1000, gpus=8, replicas=2, engine_args=arguments)  # 2 × 4 × 150 × 10^9
    # (1000 − 10 − 8 × 8 − 2 × 32) GiB / (2 × 4 × 10^9)
    assert refused.value.hint == "Set --hicache-size to 115 or less."


@pytest.mark.parametrize(
    ("engine", "arguments", "hint"),
    [
        # (500 − 10 − 32 − 32) GiB / (4 × 10^9)
        ("sglang", f"{HICACHE} --hicache-size 200", "Set --hicache-size to 114 or less."),
        # 500 − 32 − 32
        ("vllm", "--kv-offloading-size 600", "Set --kv-offloading-size to 436 or less."),
    ],
)
def test_other_sizes_are_refused_too(cluster: Cluster, engine: str, arguments: str, hint: str) -> None:
    with pytest.raises(InputError) as refused:
        plan(cluster, 500, engine=engine, engine_args=arguments)
    assert refused.value.hint == hint


def test_what_only_an_estimate_exceeds_is_planned(cluster: Cluster) -> None:
    service = plan(cluster, 400, engine_args=f"{HICACHE} --hicache-size 100").services[0]
    assert service.host_memory and "By this estimate a host runs out of memory." in service.host_memory.reason


def test_sglang_lowers_its_default_itself(cluster: Cluster) -> None:
    its = on_host(cluster, 100, engine_args=HICACHE)
    made = planned(its, known(MODEL))
    assert made.services[0].host_memory
    assert made.services[0].host_memory.bytes == 72 * GIB  # 0.8 × (100 − 10)
    assert requirements(its, made, its.hosts[0])["check_min_memory_gb"] == round(10 * GIB / GB, 1)


def test_memory_that_is_not_known_is_required_of_the_host(cluster: Cluster) -> None:
    its = on_host(cluster, None, engine="vllm", engine_args="--kv-offloading-size 100")
    made = planned(its, known(MODEL))
    service = made.services[0]
    assert service.host_memory and "--probe reads it" in service.host_memory.reason
    required = requirements(its, made, its.hosts[0])
    assert required["check_min_memory_gb"] == required["check_min_kv_shm_gb"] == round(100 * GIB / GB, 1)
    assert required["check_min_shm_gb"] == round(132 * GIB / GB, 1)
    assert service.replicas[0].nodes[0].container.shm_size == f"{132 * 1024}m"
    # 4 × 8 GiB of processes, 32 of shared memory and 100 of the cache are not for the page cache.
    assert service.weights.warm_reserve_bytes == 164 * GIB


def test_layers_of_groups_are_not_on_the_gpu(cluster: Cluster) -> None:
    whole = plan(cluster, None, engine="vllm", gpus=1).services[0].fit
    arguments = "--offload-group-size 8 --offload-num-in-group 2"
    fit = plan(cluster, None, engine="vllm", gpus=1, engine_args=arguments).services[0].fit
    # 2 of 8 layers, but for the one of 64 that is prefetched.
    layers = whole.weight_bytes_per_rank - 2 * 151_936 * 5120 * 2  # without embedding and head
    assert fit.offloaded_bytes_per_rank == pytest.approx(layers * (2 / 8 - 1 / 64), rel=0.001)
    assert fit.weight_bytes_per_rank + fit.offloaded_bytes_per_rank == whole.weight_bytes_per_rank


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_weights_in_host_memory_are_not_on_the_gpu(cluster: Cluster, engine: str) -> None:
    arguments = {
        "sglang": "--cpu-offload-gb 50",
        "vllm": "--cpu-offload-gb 50 --max-model-len 2048",
    }[engine]
    service = plan(cluster, 500, engine=engine, engine_args=arguments, gpu="RTX4090", gpus=1).services[0]
    assert service.fit.fits
    assert service.fit.offloaded_bytes_per_rank == 50 * GIB
    whole = service.fit.weight_bytes_per_rank + 50 * GIB
    assert whole == pytest.approx(known(MODEL).total_bytes, rel=0.01)
    assert service.host_memory and service.host_memory.terms == {"weights": 50 * GIB}


VARIABLE = "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"


@pytest.mark.parametrize(
    ("volumes", "hint"),
    [
        ([], "engine_volumes=/kv/a:/kv/a"),
        (["/data:/kvs"], "engine_volumes=/kv/a:/kv/a"),
        (["/data:/kv:ro"], "engine_volumes=/data:/kv without `:ro`"),
    ],
)
def test_a_folder_that_is_not_mounted_is_refused(cluster: Cluster, volumes: list[str], hint: str) -> None:
    with pytest.raises(InputError) as refused:
        plan(
            cluster,
            500,
            engine_args=f"{HICACHE} --hicache-storage-backend file",
            engine_env={VARIABLE: "/kv/a"},
            engine_volumes=volumes,
        )
    assert hint in (refused.value.hint or "")


def test_folders_of_the_plan(cluster: Cluster) -> None:
    arguments = f"{HICACHE} --hicache-storage-backend file"
    mounted = plan(
        cluster,
        500,
        engine_args=arguments,
        engine_env={VARIABLE: "/kv/a", "SGLANG_HICACHE_FILE_BACKEND_MAX_SIZE": "200G"},
        engine_volumes=["/data:/kv"],
    ).services[0]
    assert mounted.host_memory is not None
    (folder,) = mounted.host_memory.folders
    assert (folder.path, folder.host_path, folder.limit) == ("/kv/a", "/data/a", "200G for each rank")
    inside = plan(cluster, 500, engine_args=arguments).services[0]
    assert inside.host_memory is not None
    assert inside.host_memory.folders[0].host_path is None
    assert "inside the container" in inside.host_memory.reason
