"""Layers and bytes of each host where the layers of a model are divided into pipeline stages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from clusters import planned, read
from headfirst.common.errors import InputError
from headfirst.control.cli.shown.plan import print_plan
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.engines.layout import Layout
from headfirst.decide.plan.types import Weights
from headfirst.decide.plan.weights.layers import by_host
from headfirst.node.weights.layers import read_layers
from known_models import model
from run_variables import up_variables

GB = 10**9
RAY = ["engine=vllm", "engine_runtime=ray", "engine_image=acme/vllm-ray:v0.33.0"]


def cluster(folder: Path, nodes: int, *settings: str) -> Cluster:
    hosts = [f"n{rank} ansible_host=10.0.0.{rank}" for rank in range(1, nodes + 1)]
    lines = ["[head]", hosts[0], "[workers]", *hosts[1:], "[all:vars]", "gpus=8", "gpu=H100-80G"]
    return read(folder, "\n".join([*lines, f"model={model().id}", *settings]) + "\n")


def weights(folder: Path, nodes: int, *settings: str) -> Weights:
    return planned(cluster(folder, nodes, *settings), model()).services[0].weights


def spans(found: Weights) -> dict[str, str]:
    return {share.host: share.layers for share in found.shares}


@pytest.mark.parametrize(
    ("nodes", "settings", "expected"),
    [
        (2, ["tensor_parallel=8", "pipeline_parallel=2"], {"n1": "0-29", "n2": "30-60"}),
        (2, ["engine=vllm", "tensor_parallel=8", "pipeline_parallel=2"], {"n1": "0-30", "n2": "31-60"}),
        # A stage of two nodes.
        (
            4,
            ["tensor_parallel=16", "pipeline_parallel=2"],
            {"n1": "0-29", "n2": "0-29", "n3": "30-60", "n4": "30-60"},
        ),
        # Two stages a node.
        (2, ["engine=vllm", "tensor_parallel=4", "pipeline_parallel=4"], {"n1": "0-29", "n2": "30-60"}),
        # Tensor parallelism alone; Ray places the ranks.
        (2, ["tensor_parallel=16", "pipeline_parallel=1"], {}),
        (2, [*RAY, "tensor_parallel=8", "pipeline_parallel=2"], {}),
    ],
)  # fmt: skip
def test_layers_of_each_host(
    tmp_path: Path, nodes: int, settings: list[str], expected: dict[str, str]
) -> None:
    assert spans(weights(tmp_path, nodes, *settings)) == expected


def test_data_parallel_groups_may_be_anywhere(tmp_path: Path) -> None:
    settings = ["engine=vllm", "tensor_parallel=8", "pipeline_parallel=2"]
    assert spans(weights(tmp_path, 4, *settings, "engine_args=--data-parallel-size 2")) == {}


def test_the_users_partition(tmp_path: Path) -> None:
    settings = ["tensor_parallel=8", "pipeline_parallel=2", "engine_env=SGLANG_PP_LAYER_PARTITION=9,52"]
    assert spans(weights(tmp_path, 2, *settings)) == {"n1": "0-8", "n2": "9-60"}


def test_a_partition_that_the_engine_refuses(tmp_path: Path) -> None:
    settings = ["tensor_parallel=8", "pipeline_parallel=2"]
    with pytest.raises(InputError, match="does not divide 61 layers"):
        weights(tmp_path, 2, *settings, "engine_env=SGLANG_PP_LAYER_PARTITION=30,30")


def test_bytes_of_each_host_against_the_published_shards(tmp_path: Path) -> None:
    """163 shards of 4.3 GB, cut again after layers 6, 14, 22, 30, 38, 46, 53, 60 (the sizes at the hub show
    it): vLLM's first stage needs 1-78 and 160 (lm_head), the second 1 (embedding) and 79-163."""
    found = weights(tmp_path, 2, "engine=vllm", "tensor_parallel=8", "pipeline_parallel=2")
    first, second = (share.source_bytes / GB for share in found.shares)
    assert 331 <= first <= 331 * 1.03
    assert 368 <= second <= 368 * 1.03


def test_the_time_and_the_disk_follow(tmp_path: Path) -> None:
    rates = ["download_rate=100gbit", "network_rate=1gbit", "disk_rate=100Gbyte/s"]
    whole = weights(tmp_path, 2, "tensor_parallel=16", "pipeline_parallel=1", *rates)
    halves = weights(tmp_path, 2, "tensor_parallel=8", "pipeline_parallel=2", *rates)
    assert halves.time.bottleneck == whole.time.bottleneck == "broadcast"
    share = halves.shares[1].source_bytes / halves.source_bytes
    assert halves.time.seconds == pytest.approx(whole.time.seconds * share, rel=0.02)
    assert whole.disk_bytes == whole.served_bytes
    # Eight shards for the second host pass through the first.
    assert halves.shares[1].served_bytes < halves.disk_bytes < halves.shares[1].served_bytes + 60 * GB


def test_the_roles_and_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = cluster(tmp_path, 2, "tensor_parallel=8", "pipeline_parallel=2")
    plan = planned(made, model())
    print_plan(plan)
    assert "n2: layers 30-60, at most 385.0 GB" in capsys.readouterr().out
    for variables in up_variables(made, plan, Secrets(), Artifacts(Path("/none"))).values():
        assert variables["weights_layers"] == {"10.0.0.1": "0-29", "10.0.0.2": "30-60"}
        assert variables["weights_hidden_layers"] == 61
    for span in variables["weights_layers"].values():
        assert read_layers(span)


def test_replicas_divide_the_layers_alike(tmp_path: Path) -> None:
    found = weights(tmp_path, 4, "tensor_parallel=8", "pipeline_parallel=2", "replicas=2")
    assert spans(found) == {"n1": "0-29", "n2": "30-60", "n3": "0-29", "n4": "30-60"}


def test_a_host_with_ranks_of_two_replicas_needs_all_that_these_load(tmp_path: Path) -> None:
    made = cluster(tmp_path, 3, "tensor_parallel=8", "pipeline_parallel=2")
    service = made.services[0]
    first, second, third = service.replicas[0].places
    pairs = ((first, second), (second, third))
    replicas = tuple(replace(service.replicas[0], index=at, places=places) for at, places in enumerate(pairs))
    sizes = Layout(tensor=8, pipeline=2)
    found = by_host(replace(service, replicas=replicas), engines.get("vllm"), model(), sizes)
    assert found == {first.host.name: range(31), second.host.name: range(61), third.host.name: range(31, 61)}


@pytest.mark.parametrize(("fetch", "fetching"), [("head", ["n1"]), ("all", ["n1", "n2", "n3"])])
def test_members_are_in_order_and_a_spare_needs_every_layer(
    tmp_path: Path, fetch: str, fetching: list[str]
) -> None:
    settings = ["tensor_parallel=8", "pipeline_parallel=2", f"weights_fetch={fetch}"]
    made = cluster(tmp_path, 2, *settings, "[spares]", "n3 ansible_host=10.0.0.3")
    members = planned(made, model()).services[0].weights.members
    assert [(member.host, member.layers) for member in members] == [
        ("n1", "0-29"), ("n2", "30-60"), ("n3", "0-60"),
    ]  # fmt: skip
    assert [member.host for member in members if member.fetches] == fetching
