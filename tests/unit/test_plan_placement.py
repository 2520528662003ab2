"""Where the weights are served from, what that costs, and whether they are read into memory first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clusters import planned, read, with_hosts, with_settings
from headfirst.common.errors import InputError
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.hosts.probe import lacks_facts
from headfirst.control.deployment.running.role_vars.engine import replica_vars
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.hardware.facts import FolderFacts
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.types import Weights
from known_models import model
from run_variables import up_of

GB = 10**9
INVENTORY = """
[head]
node1 ansible_host=192.168.5.4 gpus=8 gpu={gpu} nic=eth0 hca=none
[workers]
node2 ansible_host=192.168.5.5 gpus=8 gpu={gpu} nic=eth0 hca=none
node3 ansible_host=192.168.5.6 gpus=8 gpu={gpu} nic=eth0 hca=none
node4 ansible_host=192.168.5.7 gpus=8 gpu={gpu} nic=eth0 hca=none
[all:vars]
model=/share/DeepSeek-R1-Distill-Llama-70B
model_source=path
"""


def folder(name: str, **changes: Any) -> FolderFacts:
    """The model folder as hosts see it that have `name` for it."""
    facts = {"exists": True, "type": "nfs4", "shared": True, "cached": True, "leads_out": False}
    facts |= {"shape": "1" * 32, "sight": name * 32}
    return FolderFacts.model_validate(facts | changes)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return inventory(tmp_path, "A100-80G")


def inventory(folder: Path, gpu: str) -> Cluster:
    return read(folder, INVENTORY.format(gpu=gpu))


def seeing(cluster: Cluster, folders: Sequence[FolderFacts | None], **facts: Any) -> Cluster:
    hosts: list[Host] = [
        replace(host, model_folder=one, **facts) for host, one in zip(cluster.ranks, folders, strict=True)
    ]
    return with_hosts(cluster, hosts)


@pytest.fixture
def checkpoint() -> Checkpoint:
    return model("deepseek-ai/DeepSeek-R1-Distill-Llama-70B")


def weights(cluster: Cluster, checkpoint: Checkpoint) -> Weights:
    return planned(cluster, checkpoint).services[0].weights


def test_a_share_that_all_nodes_see_is_served_in_place(cluster: Cluster, checkpoint: Checkpoint) -> None:
    found = weights(seeing(cluster, [folder("a")] * 4), checkpoint)
    assert found.placement == "in_place"
    assert found.placement_reason == "the same files on all nodes, on nfs4; verified by node1"
    assert found.disk_bytes == 0
    assert set(found.time.stages) == {"fetch", "verify"}
    assert "broadcast" in weights(cluster, checkpoint).time.stages


def test_copies_are_each_verified_and_one_that_differs_is_named(
    cluster: Cluster, checkpoint: Checkpoint
) -> None:
    local = {"type": "ext4", "shared": False}
    folders = [folder(name, **local) for name in "abc"] + [folder("d", **local, shape="2" * 32)]
    found = weights(seeing(cluster, folders), checkpoint)
    assert found.placement == "in_place"
    assert found.placement_reason == (
        "a copy on each node; verified by node1, node2, node3, node4; "
        "node4 has other files and gets its own copy"
    )


@pytest.mark.parametrize(
    "change", [{"exists": False, "sight": "", "shape": ""}, {"leads_out": True}], ids=["missing", "links"]
)
def test_where_a_node_cannot_serve_it_the_folder_is_staged(
    cluster: Cluster, checkpoint: Checkpoint, change: dict[str, Any]
) -> None:
    folders = [folder("a"), folder("a"), folder("b", **change), folder("a")]
    found = weights(seeing(cluster, folders), checkpoint)
    assert (found.placement, "node3" in found.placement_reason) == ("staged", True)
    assert 0 < found.disk_bytes <= found.served_bytes  # each node keeps its layers


def test_the_settings_decide_before_the_facts(cluster: Cluster, checkpoint: Checkpoint) -> None:
    seen = seeing(cluster, [folder("a")] * 4)
    stage = with_settings(cluster, weights_shared="stage")
    assert lacks_facts(cluster)
    assert not lacks_facts(seen)
    assert not lacks_facts(stage)
    assert weights(with_settings(seen, weights_shared="stage"), checkpoint).placement == "staged"
    in_place = with_settings(cluster, weights_shared="in_place")
    assert weights(in_place, checkpoint).placement == "in_place"
    with pytest.raises(InputError, match="not a folder of the nodes"):
        weights(with_settings(in_place, model_source="modelscope"), checkpoint)


def test_a_shared_weights_dir_is_written_once(cluster: Cluster, checkpoint: Checkpoint) -> None:
    hub = with_settings(cluster, model_source="modelscope")
    assert weights(hub, checkpoint).placement == "brought"
    assert "broadcast" in weights(hub, checkpoint).time.stages
    shared = seeing(hub, [None] * 4, weights_dir_shared=True)
    assert "broadcast" not in weights(shared, checkpoint).time.stages


def test_what_is_converted_is_staged_and_never_in_place(tmp_path: Path) -> None:
    r1 = model()
    seen = seeing(inventory(tmp_path, "A100-80G"), [folder("a")] * 4)
    found = weights(seen, r1)
    assert (found.placement, "converts its copy" in found.placement_reason) == ("staged", True)
    with pytest.raises(InputError, match="converted to BF16"):
        weights(with_settings(seen, weights_shared="in_place"), r1)
    h100 = seeing(inventory(tmp_path, "H100-80G"), [folder("a")] * 4)
    assert weights(h100, r1).placement == "in_place"


@pytest.mark.parametrize(
    ("setting", "memory", "expected"),
    [
        ("auto", 1024 * GB, "whole"),
        ("auto", 200 * GB, "none"),  # 141 GB of weights, 69 GB for 8 ranks, 34 GB of shared memory
        (True, 200 * GB, "part"),
        (False, 1024 * GB, "none"),
    ],
)
def test_the_page_cache_is_warmed_where_memory_allows(
    cluster: Cluster, checkpoint: Checkpoint, setting: object, memory: int, expected: str
) -> None:
    hosts = seeing(with_settings(cluster, weights_warm_cache=setting), [None] * 4, memory_bytes=memory)
    found = weights(hosts, checkpoint)
    assert found.warm_cache == expected
    assert found.warm_reserve_bytes == 8 * (8 << 30) + (32 << 30)
    without_page_cache = [folder("a", type="gpfs", cached=False)] * 4
    assert weights(seeing(cluster, without_page_cache), checkpoint).warm_cache == "none"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (True, ["--reserve", str(8 * (8 << 30) + (32 << 30))]),
        ("auto", ["--reserve", str(8 * (8 << 30) + (32 << 30)), "--whole"]),
        (False, None),
    ],
)
def test_the_ranks_start_after_the_job_that_the_plan_chose(
    cluster: Cluster, checkpoint: Checkpoint, setting: object, expected: list[str] | None
) -> None:
    chosen = with_settings(cluster, weights_warm_cache=setting)
    plan = planned(chosen, checkpoint)
    up, service = up_of(chosen, plan, Secrets().with_keys([None])), plan.services[0]
    own = replica_vars(up, service, service.replicas[0])["node2"]
    argv = own["engine_warm_argv"]
    assert argv == ([*argv[:3], *expected] if expected else [])
    if expected:
        assert argv[1:3] == ["warm", service.weights.directory]
