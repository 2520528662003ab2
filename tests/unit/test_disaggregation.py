"""Services with prefill and decode replicas: hosts, commands, what is refused, what routers get."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import catalogued, read
from headfirst.common.errors import InputError
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.role_vars.engine import replica_vars
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.host.requirements import requirements
from headfirst.decide.plan.types import PlannedReplica
from run_variables import up_of

pytestmark = pytest.mark.usefixtures("no_hub")

HOSTS = "gpus=8\ngpu=H100-80G\nmodel_source=huggingface\n"
MODEL = "Qwen/Qwen3-32B"
PAIR = "prefill_replicas=1\ndecode_replicas=1\n"


def cluster(folder: Path, settings: str, *, hosts: int = 2, groups: str = "", model: str = MODEL) -> Cluster:
    workers = "".join(f"node{n} ansible_host=192.0.2.{n}\n" for n in range(2, hosts + 1))
    ranks = f"[head]\nnode1 ansible_host=192.0.2.1\n[workers]\n{workers}\n{groups}\n"
    return read(folder, f"{ranks}[all:vars]\n{HOSTS}model={model}\n{settings}\n")


def places(its: Cluster) -> str:
    """Each replica's hosts, with its GPUs where they are not all of the host's."""
    return "; ".join(
        " ".join([str(replica.role), *(_place(place.host.name, place.devices) for place in replica.places)])
        for replica in its.services[0].replicas
    )


def _place(host: str, devices: tuple[str, ...] | None) -> str:
    return host if devices is None else f"{host}:{''.join(devices)}"


def command(replica: PlannedReplica, rank: int = 0) -> str:
    return " ".join(replica.nodes[rank].container.command)


@pytest.mark.parametrize(
    ("settings", "hosts", "groups", "expected"),
    [
        (PAIR, 2, "", "prefill node1; decode node2"),
        (PAIR, 1, "", "prefill node1:0123; decode node1:4567"),
        (PAIR, 3, "[prefill]\nnode1\n", "prefill node1; decode node2 node3"),
        (PAIR, 3, "[decode]\nnode1\n[prefill]\nnode[2:3]\n", "prefill node2 node3; decode node1"),
        (
            "prefill_replicas=2\ndecode_replicas=1\nprefill_gpus_per_replica=4\ndecode_gpus_per_replica=8\n",
            2,
            "",
            "prefill node1:0123; prefill node1:4567; decode node2",
        ),
        (PAIR + "prefill_gpus_per_replica=2\n", 1, "", "prefill node1:01; decode node1:234567"),
        (
            PAIR + "prefill_gpus_per_replica=2\ndecode_gpus_per_replica=4\n",
            1,
            "[prefill]\nnode1\n[decode]\nnode1\n",
            "prefill node1:01; decode node1:2345",
        ),
    ],
)
def test_hosts_and_gpus_of_each_replica(
    settings: str, hosts: int, groups: str, expected: str, tmp_path: Path
) -> None:
    assert places(cluster(tmp_path, settings, hosts=hosts, groups=groups)) == expected


@pytest.mark.parametrize(
    ("settings", "groups", "words"),
    [
        ("prefill_replicas=1", "", "prefill_replicas is set without decode_replicas"),
        ("decode_tensor_parallel=4", "", "decode_tensor_parallel is set without"),
        (PAIR + "replicas=2", "", "replicas is set beside"),
        (PAIR, "[prefill]\nnode[1:2]\n", "no host of the service is left for the decode replicas"),
        (PAIR, "[prefill]\nnode9 ansible_host=192.0.2.9\n", "node9 is in [prefill] and runs no rank"),
        ("replicas=2", "[decode]\nnode2\n", "the group [decode] has no meaning without"),
        (PAIR + "engine_port=7100", "", "have the same port 7100"),
    ],
)
def test_an_inventory_that_contradicts_itself_is_refused(
    settings: str, groups: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as refused:
        cluster(tmp_path, settings, groups=groups)
    assert words in refused.value.what


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("engine=lmdeploy", "does not divide prefill and decode"),
        ("model=Qwen/Qwen3-Embedding-8B", "generates no tokens"),
        ("engine=vllm\nkv_transfer=mooncake", "kv_transfer=mooncake is not supported with vLLM"),
        ("prefill_engine_args='--page-size 64'", "--page-size is 64 for prefill and left out for decode"),
        ("engine_args='--disaggregation-mode prefill'", "disaggregation-mode"),
        ("engine=vllm\ndecode_engine_args='--kv-cache-dtype fp8'", "--kv-cache-dtype differs"),
        ("engine=vllm\nengine_args='--kv-transfer-config {}'", "kv-transfer-config"),
        (
            "decode_tensor_parallel=4\ndecode_pipeline_parallel=2",
            "decode has 2 pipeline stages and prefill 1",
        ),
        ("engine=vllm\ndecode_tensor_parallel=4\ndecode_pipeline_parallel=2", "decode has 2 pipeline stages"),
    ],
)
def test_what_the_engine_refuses_is_refused_with_a_reason(settings: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        catalogued(cluster(tmp_path, PAIR + settings))
    assert words in str(refused.value)


def test_sglang_has_a_side_a_port_and_the_rdma_devices(tmp_path: Path) -> None:
    plan = catalogued(cluster(tmp_path, PAIR + "hca=mlx5_1,mlx5_2\nib_gid_index=3"))
    prefill, decode = plan.services[0].replicas
    common = "--disaggregation-transfer-backend mooncake"
    devices = "--disaggregation-ib-device mlx5_1,mlx5_2"
    sides = [
        f"--disaggregation-mode prefill {common} --disaggregation-bootstrap-port 7100 {devices}",
        f"--disaggregation-mode decode {common} {devices}",
    ]
    for replica, words in zip((prefill, decode), sides, strict=True):
        assert words in command(replica)
        assert replica.nodes[0].container.devices == ["/dev/infiniband"]
        assert replica.nodes[0].container.environment["SGLANG_HOST_IP"] == replica.nodes[0].address
    assert prefill.worker == {"worker_type": "prefill", "bootstrap_port": 7100}
    assert decode.worker == {"worker_type": "decode"}


def test_sglang_without_rdma_uses_tcp(tmp_path: Path) -> None:
    plan = catalogued(cluster(tmp_path, PAIR + "hca=none"))
    assert "--disaggregation-transfer-backend mooncake_tcp" in command(plan.services[0].replicas[0])


def test_vllm_has_nixl_with_its_role_and_the_port_of_its_host(tmp_path: Path) -> None:
    plan = catalogued(cluster(tmp_path, PAIR + "engine=vllm\nhca=none\nnic=eth0"))
    for replica, role in zip(plan.services[0].replicas, ("kv_producer", "kv_consumer"), strict=True):
        node = replica.nodes[0]
        assert f'"kv_role":"{role}"' in command(replica)
        assert node.container.environment["VLLM_NIXL_SIDE_CHANNEL_HOST"] == node.address
        assert node.container.environment["VLLM_NIXL_SIDE_CHANNEL_PORT"] == "7100"
        assert node.container.environment["UCX_NET_DEVICES"] == "eth0"
        assert replica.worker == {
            "worker_type": replica.role,
            "kv_connector": "NixlConnector",
            "kv_role": role,
        }


def test_each_side_has_its_own_sizes_and_arguments(tmp_path: Path) -> None:
    settings = (
        PAIR + "engine_args='--mem-fraction-static 0.8'\nprefill_tensor_parallel=2\n"
        "prefill_gpus_per_replica=2\ndecode_gpus_per_replica=4\n"
        "decode_engine_args='--cuda-graph-max-bs-decode 64'\ndecode_engine_env='A=1'"
    )
    (service,) = catalogued(cluster(tmp_path, settings, hosts=1)).services
    prefill, decode = service.replicas
    assert service.prefill
    assert (service.prefill.tensor_parallel, service.tensor_parallel) == (2, 4)
    assert service.prefill.fit.weight_bytes_per_rank > service.fit.weight_bytes_per_rank
    assert "--mem-fraction-static 0.8" in command(prefill)
    assert "--mem-fraction-static 0.8 --cuda-graph-max-bs-decode 64" in command(decode)
    assert "A" not in prefill.nodes[0].container.environment
    assert decode.nodes[0].container.environment["A"] == "1"


def test_hosts_of_both_sides_must_reach_each_other(tmp_path: Path) -> None:
    its = cluster(tmp_path, PAIR)
    plan = catalogued(its)
    (head, worker) = its.services[0].hosts
    required = requirements(its, plan, head)
    assert required["check_open_peers"] == [worker.address]
    assert required["check_open_ports"] == [5000, 7100]
    assert 7100 in required["check_ports"]
    assert its.services[0].meeting == [(head, worker)]


def test_each_side_captures_its_own_graphs_only(tmp_path: Path) -> None:
    (service,) = catalogued(cluster(tmp_path, PAIR)).services
    assert service.prefill
    assert "decode_graphs" not in service.prefill.fit.terms
    assert "prefill_graphs" in service.prefill.fit.terms
    assert "prefill_graphs" not in service.fit.terms
    assert "decode_graphs" in service.fit.terms


@pytest.mark.parametrize(
    ("devices", "rate"), [("mlx5_0", "100"), ("mlx5_0,mlx5_1,mlx5_2,mlx5_3", "400"), ("^mlx5_0", "100")]
)
def test_rdma_that_the_inventory_names_carries_the_kv_cache(tmp_path: Path, devices: str, rate: str) -> None:
    """Its rate is assumed where nobody has read it: not that of TCP over 10 Gbit/s."""
    (service,) = catalogued(cluster(tmp_path, f"{PAIR}hca={devices}\n")).services
    assert service.transfer and service.transfer.rdma
    assert f"is sent over RDMA at {rate} Gbit/s (assumed): " in service.transfer.reasons[0]


def test_the_traffic_of_a_prompt_is_compared_with_the_link(tmp_path: Path) -> None:
    (service,) = catalogued(cluster(tmp_path, PAIR + "network_rate=100gbit")).services
    assert service.transfer
    # 64 layers, 8 KV heads of 128, keys and values, BF16.
    assert service.transfer.bytes_per_token == 64 * 8 * 128 * 2 * 2
    assert "100 Gbit/s: 1,000 tokens (262 MB) in 21 ms" in service.transfer.reasons[0]


@pytest.mark.parametrize(
    ("rate", "time"),
    [
        ("10gbit", "210 ms, 8,000 tokens (2,097 MB) in 1.7 s"),
        ("1gbit", "2.1 s, 8,000 tokens (2,097 MB) in 17 s"),
    ],
)
def test_no_time_is_a_power_of_ten(rate: str, time: str, tmp_path: Path) -> None:
    (service,) = catalogued(cluster(tmp_path, f"{PAIR}network_rate={rate}")).services
    assert service.transfer
    assert f"1,000 tokens (262 MB) in {time}" in service.transfer.reasons[0]


@pytest.mark.parametrize(
    ("settings", "way"),
    [
        ("hca=none", "Mooncake over TCP"),
        ("hca=mlx5_1\nkv_transfer=nixl", "NIXL over RDMA"),
        ("engine=vllm", "NIXL over RDMA or TCP (not known)"),
    ],
)
def test_the_plan_names_the_carrier_and_the_network(settings: str, way: str, tmp_path: Path) -> None:
    (service,) = catalogued(cluster(tmp_path, PAIR + settings)).services
    assert service.transfer
    assert service.transfer.way == way


def test_the_router_and_the_supervisors_get_the_role(tmp_path: Path) -> None:
    its = cluster(tmp_path, "prefill_replicas=1\ndecode_replicas=2", hosts=3)
    plan, secrets = catalogued(its), Secrets().with_keys([None])
    (service,) = plan.services
    whole = catalogued(cluster(tmp_path, "replicas=3", hosts=3)).services[0].routers[0].container
    # Its arguments stay where the shape changes; the check of requests is before it, or is not.
    assert service.routers[0].container.command[1:] == whole.command[2:]
    up = up_of(its, plan, secrets)
    variables = [next(iter(replica_vars(up, service, replica).values())) for replica in service.replicas]
    assert [each["engine_supervision"]["worker"]["worker_type"] for each in variables] == [
        *["prefill", "decode", "decode"]
    ]
    urls = [replica.engine_url for replica in service.replicas]
    before = [[urls[0], "prefill"], [urls[1], "decode"]]
    assert [each["engine_changed"] for each in variables] == [[], before[:1], before]
    assert service.readiness.probe_body["bootstrap_host"] == "2.2.2.2"


def test_undivided_services_are_as_before(tmp_path: Path) -> None:
    plan = catalogued(cluster(tmp_path, "replicas=2"))
    (service,) = plan.services
    document = service.model_dump(mode="json")
    assert not {"prefill", "transfer"} & document.keys()
    assert not {"role", "worker", "transfer_port"} & document["replicas"][0].keys()
    assert "--pd-disaggregation" not in service.routers[0].container.command


def test_a_spare_takes_the_place_of_a_host_of_either_side(tmp_path: Path) -> None:
    spares = "[spares]\nspare ansible_host=192.0.2.9\n"
    its = cluster(tmp_path, PAIR + "spare_takeover=true\nhca=none\nnic=eth0", hosts=4, groups=spares)
    (service,) = catalogued(its).services
    roles = [(standby.replica.role, standby.replaces) for standby in service.standbys]
    assert roles == [("prefill", 0), ("prefill", 1), ("decode", 0), ("decode", 1)]
    assert all(standby.replica.worker["worker_type"] == standby.replica.role for standby in service.standbys)
    assert "--disaggregation-mode decode" in command(service.standbys[-1].replica, 1)
